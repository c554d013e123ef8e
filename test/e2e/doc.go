// Package e2e uses the built binary as applications and phones do: gateways are processes, phones are fake and misbehave on command.
//
// Files named cases_*_test.go keep faults that hurt other gateways. Each test is named after the guarantee it checks, not after the fault.
// Fleets live twenty times faster than life, so clocks are short; nothing depends on how fast the machine is, only outer deadlines do.
package e2e
