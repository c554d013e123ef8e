package fakephone

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var (
	errGone   = errors.New("fakephone: client gone")
	errKilled = errors.New("fakephone: process killed")
)

// noticeTime is how long a disconnect may take to be seen. A request that had to wait beside a slot whose client turns out to have
// left within this time is no over-commit.
const noticeTime = 200 * time.Millisecond

// engine is the slots of one process of a phone and the queue before them: first come, first served, silent, without limit.
type engine struct {
	cfg   Config
	dead  <-chan struct{} // closed when the process is killed
	stats *counters

	mu      sync.Mutex // guards all below
	slots   []slot
	busy    int
	changed chan struct{} // closed and replaced when busy changes
	queue   []*waiter
	heat    heat
	tasks   int
	totals  totals
	decodes int // decode steps, and the slots that took part, for n_busy_slots_per_decode
	takers  int
}

// slot is what /slots shows.
type slot struct {
	busy, live bool // working; and its client is still connected
	task       int
	promptN    int
	processed  int
	decoded    int
	remain     int
	stream     bool
	limit      int
}

// totals are the counters of /metrics since the process started.
type totals struct {
	promptTokens, predictedTokens, maxTokens int
	prompt, predicted                        time.Duration
}

type waiter struct {
	n       int
	lease   *lease // set before ready is closed
	ready   chan struct{}
	since   time.Time
	sawDead bool
}

// lease is the slots one request works on.
type lease struct {
	e    *engine
	ids  []int // slot of each choice's worker; -1 when freed
	gone bool
}

func newEngine(cfg Config, dead <-chan struct{}, stats *counters) *engine {
	return &engine{cfg: cfg, dead: dead, stats: stats, slots: make([]slot, cfg.Slots), changed: make(chan struct{})}
}

// acquire waits for n slots. It returns errGone when ctx ends first and errKilled when the process does.
func (e *engine) acquire(ctx context.Context, n int) (*lease, error) {
	e.mu.Lock()
	if len(e.queue) == 0 && len(e.slots)-e.busy >= n {
		l := e.grantLocked(n)
		e.mu.Unlock()
		return l, nil
	}
	w := &waiter{n: n, ready: make(chan struct{}), since: time.Now(), sawDead: e.anyDeadLocked()}
	e.queue = append(e.queue, w)
	e.stats.queued(len(e.queue))
	e.mu.Unlock()

	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = errGone
	case <-e.dead:
		err = errKilled
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.waited(!w.sawDead)
	if err == nil {
		return w.lease, nil
	}
	if w.lease != nil { // granted in the same moment
		w.lease.releaseLocked()
	} else {
		e.queue = slices.DeleteFunc(e.queue, func(o *waiter) bool { return o == w })
		e.stats.queued(len(e.queue))
		e.serveLocked() // those behind may need fewer slots
	}
	return nil, err
}

func (e *engine) grantLocked(n int) *lease {
	if e.busy == 0 {
		e.heat.set(time.Now(), true, e.cfg.Profile, e.cfg.Speed)
	}
	l := &lease{e: e}
	for id := range e.slots {
		if len(l.ids) == n {
			break
		}
		if !e.slots[id].busy {
			e.tasks++
			e.slots[id] = slot{busy: true, live: true, task: e.tasks}
			l.ids = append(l.ids, id)
		}
	}
	e.busy += n
	e.changedLocked()
	e.publishLocked()
	return l
}

func (e *engine) serveLocked() {
	for len(e.queue) > 0 && len(e.slots)-e.busy >= e.queue[0].n {
		w := e.queue[0]
		e.queue = e.queue[1:]
		w.lease = e.grantLocked(w.n)
		close(w.ready)
	}
	e.stats.queued(len(e.queue))
}

func (e *engine) anyDeadLocked() bool {
	return slices.ContainsFunc(e.slots, func(s slot) bool { return s.busy && !s.live })
}

func (e *engine) publishLocked() {
	live := 0
	for _, s := range e.slots {
		if s.busy && s.live {
			live++
		}
	}
	e.stats.working(e.busy, live)
}

// abandon notes that the client of the lease has left while its slots work on.
func (l *lease) abandon() {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.gone = true
	for _, id := range l.ids {
		if id >= 0 {
			l.e.slots[id].live = false
		}
	}
	for _, w := range l.e.queue {
		if time.Since(w.since) <= noticeTime {
			w.sawDead = true
		}
	}
	l.e.publishLocked()
}

// release frees all slots of the lease that are not free yet.
func (l *lease) release() {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.releaseLocked()
}

func (l *lease) releaseLocked() {
	for i := range l.ids {
		l.freeLocked(i)
	}
	l.e.serveLocked()
}

// free frees the slot of one choice.
func (l *lease) free(choice int) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.freeLocked(choice)
	l.e.serveLocked()
}

func (l *lease) freeLocked(choice int) {
	if choice >= len(l.ids) || l.ids[choice] < 0 {
		return
	}
	e := l.e
	s := &e.slots[l.ids[choice]]
	s.busy, s.live = false, false
	l.ids[choice] = -1
	if e.busy--; e.busy == 0 {
		e.heat.set(time.Now(), false, e.cfg.Profile, e.cfg.Speed)
	}
	e.changedLocked()
	e.publishLocked()
}

// changedLocked lets running steps compute anew when they are done.
func (e *engine) changedLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// show updates what /slots says about the slots of the lease.
func (l *lease) show(update func(*slot)) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	for _, id := range l.ids {
		if id >= 0 {
			update(&l.e.slots[id])
		}
	}
}

// rate is how many seconds of a cold, otherwise idle phone's work are done in a second now. own is the number of slots the asking
// request keeps busy beyond the one that works: they do not slow it down. changed is closed when the rate must be asked for again.
func (e *engine) rate(own int) (rate float64, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rate = e.cfg.Speed / float64(max(1, e.busy-own))
	if e.cfg.Heat {
		rate *= e.heat.speed(time.Now(), e.cfg.Profile, e.cfg.Speed)
	}
	return rate, e.changed
}

// decoded counts one decode step of takers slots.
func (e *engine) decoded(takers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decodes++
	e.takers += takers
}

// count adds a finished request to the totals.
func (e *engine) count(promptN int, prompt time.Duration, predictedN int, predicted time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.totals.promptTokens += promptN
	e.totals.predictedTokens += predictedN
	e.totals.prompt += prompt
	e.totals.predicted += predicted
	e.totals.maxTokens = max(e.totals.maxTokens, promptN+predictedN)
}
