package balancer

import "fmt"

// Class is the urgency of a ticket. Lower values are served first.
type Class uint8

// The classes, most urgent first. The zero value is Guard, so a Class must always be set on purpose; configuration defaults to Review.
const (
	Guard  Class = iota // always-on checks of short texts, answered in seconds
	Chat                // a person is waiting
	Review              // long prompts, short answers, minutes are fine
	Batch               // overnight work
)

var classNames = [...]string{Guard: "guard", Chat: "chat", Review: "review", Batch: "batch"}

// String returns the name used in configuration, headers, logs and Redis.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// ParseClass is the inverse of String.
func ParseClass(name string) (Class, error) {
	for c, n := range classNames {
		if n == name {
			return Class(c), nil
		}
	}
	return 0, fmt.Errorf("unknown class %q: use guard, chat, review or batch", name)
}
