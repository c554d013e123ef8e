// Package e2e holds tests of whole fleets and whole lives: a hundred phones behind two gateways on a real Redis, phones and gateways that
// are killed, a Redis that is frozen, gateways that stop. Single requests are in test/cases.
package e2e
