package balancer

import "time"

// ReplicaID names one phone. At most 64 bytes of [A-Za-z0-9._:-].
type ReplicaID string

// Engine is the software that answers on a phone; it decides the dialect of the relay.
type Engine string

// The engines we know.
const (
	LlamaCpp Engine = "llama.cpp" // llama-server: streamed always, since only then it can be cancelled
	MNN      Engine = "mnn"       // one request at a time, no cancel
	OpenAI   Engine = "openai"    // anything else that speaks OpenAI's API
)

// Replica is what is known of a phone before it has answered anything.
type Replica struct {
	ID      ReplicaID
	Model   string // the name callers use
	Engine  Engine
	Slots   int // requests it may serve at the same time; at least 1
	Context int // tokens of one slot; 0 when unknown
	Prior   Speeds
	EndsAt  time.Time // end of the deployment; zero when it has none
}

// Speeds are tokens a second. Zero means unknown.
type Speeds struct {
	Prefill float64
	Decode  float64
}

// State says whether a phone gets work. It is shared by all gateways; see package health for the way from one to the next.
type State uint8

// The states of a replica.
const (
	Joining  State = iota // known, not yet proved by a probe
	Ready                 // gets work
	Suspect               // gets work only when no ready phone is feasible
	Down                  // gets no work until a probe succeeds
	Draining              // finishes what it has, gets nothing new
)

var stateNames = [...]string{Joining: "joining", Ready: "ready", Suspect: "suspect", Down: "down", Draining: "draining"}

// States lists every state, in order, for metrics and tests.
func States() []State { return []State{Joining, Ready, Suspect, Down, Draining} }

// String returns the name used in Redis, metrics and logs.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// ParseState is the inverse of String; an unknown name is Joining, which gets no work.
func ParseState(name string) State {
	for s, n := range stateNames {
		if n == name {
			return State(s)
		}
	}
	return Joining
}

// View is one replica as a snapshot saw it.
type View struct {
	Replica
	Generation int64 // grows with each join; a lease of an older generation is void
	State      State
	Reason     string      // why it is not ready, in words for an operator; empty when ready
	Since      time.Time   // of the state
	LeaveAlone time.Time   // the phone said "busy": no work before this
	Ends       []time.Time // predicted end of each live lease, and of each cooling slot
	Learned    Learned
}

// Free is the number of slots that could be granted, as the snapshot saw it.
func (v *View) Free() int { return max(v.Slots-len(v.Ends), 0) }

// Depth is the number of occupied slots: live leases and slots that are cooling after a cancel.
func (v *View) Depth() int { return len(v.Ends) }

// Usable reports whether the replica may get work at now at all.
func (v *View) Usable(now time.Time) bool {
	return (v.State == Ready || v.State == Suspect) && !now.Before(v.LeaveAlone)
}

// Snapshot is the fleet at one moment. It is immutable: the dispatcher swaps the pointer.
type Snapshot struct {
	At      time.Time      // by the clock of the shared state
	Views   []View         // ordered by ID
	Queued  map[string]int // waiting tickets by model
	byModel map[string][]int
	byID    map[ReplicaID]int
}

// NewSnapshot indexes views, which it keeps. Queued may be nil.
func NewSnapshot(at time.Time, views []View, queued map[string]int) *Snapshot {
	s := &Snapshot{At: at, Views: views, Queued: queued, byModel: make(map[string][]int), byID: make(map[ReplicaID]int, len(views))}
	for i := range views {
		s.byID[views[i].ID] = i
		s.byModel[views[i].Model] = append(s.byModel[views[i].Model], i)
	}
	return s
}

// Pool returns the indexes into Views of the replicas that serve model. The caller must not change it.
func (s *Snapshot) Pool(model string) []int { return s.byModel[model] }

// Find returns the view of id, or nil.
func (s *Snapshot) Find(id ReplicaID) *View {
	if i, ok := s.byID[id]; ok {
		return &s.Views[i]
	}
	return nil
}
