package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// reply reads the array a script returned, element by element. The first element of a wrong type sticks in err and makes the rest zero.
type reply struct {
	rest []any
	err  error
}

func newReply(v any) reply {
	list, ok := v.([]any)
	if !ok {
		return reply{err: fmt.Errorf("reply is %T, not an array", v)}
	}
	return reply{rest: list}
}

func (r *reply) more() bool { return r.err == nil && len(r.rest) > 0 }

func (r *reply) next() any {
	if r.err != nil {
		return nil
	}
	if len(r.rest) == 0 {
		r.err = errors.New("reply is too short")
		return nil
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

func (r *reply) text() string {
	v := r.next()
	if r.err != nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		r.err = fmt.Errorf("reply has %T where a string is due", v)
	}
	return s
}

// number accepts integers and their decimal text.
func (r *reply) number() int64 {
	v := r.next()
	if r.err != nil {
		return 0
	}
	switch n := v.(type) {
	case int64:
		return n
	case string:
		i, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			r.err = errors.New("reply has a text where a number is due")
		}
		return i
	default:
		r.err = fmt.Errorf("reply has %T where a number is due", v)
		return 0
	}
}

// float reads a fraction, which scripts return as text.
func (r *reply) float() float64 {
	text := r.text()
	if r.err != nil {
		return 0
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		r.err = errors.New("reply has a text where a fraction is due")
	}
	return x
}

func (r *reply) flag() bool { return r.number() != 0 }

// duration reads milliseconds.
func (r *reply) duration() time.Duration { return time.Duration(r.number()) * time.Millisecond }

// list reads a nested array.
func (r *reply) list() reply {
	v := r.next()
	if r.err != nil {
		return reply{err: r.err}
	}
	nested := newReply(v)
	r.err = nested.err
	return nested
}

// texts reads the rest as strings.
func (r reply) texts() ([]string, error) {
	list := make([]string, 0, len(r.rest))
	for r.more() {
		list = append(list, r.text())
	}
	return list, r.err
}

// millis is t in ms since the epoch; 0 stands for the zero time, here and in Redis.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMillis is the inverse of millis.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// failed returns what went wrong while reading the reply of a script.
func (r *reply) failed(sc script) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("redis %s: %w", sc.name, r.err)
}
