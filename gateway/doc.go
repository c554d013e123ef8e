// Package gateway is the HTTP edge: routes, the one pipeline every request takes, and the table that turns errors into answers.
//
//	body ─► openai.Head ─► auth.Principal ─► balancer.Ticket ─► balancer.Lease ─► relay.Result ─► account.Record
//	        parse once     who               admitted, queued   where             what happened   settle, log
//
// The pipeline is [Gateway.serve] in pipeline.go and reads like the line above. Each stage takes values and returns new ones. What it needs
// of other rooms it says in the small interfaces of deps.go. Its goroutines (one keep-alive for a streaming caller) end before the handler
// returns.
package gateway
