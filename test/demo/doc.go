// Package demo is the show of `phonebank demo --once`: three requests through a gateway, a phone killed on the way, and a verdict on every
// answer. It talks to the gateway as any application would and prints what happens while it happens.
package demo
