package redisstore

import "fmt"

// keys builds the names of the keys that Go reads without a script. The scripts build all of them from the prefix, KEYS[1]. What they hold
// and who removes them:
//
//	reps            set of replica ids                                    leave
//	r:<replica>     hash: the static fields, health, generation, rank      leave
//	s:<replica>     hash of decaying sums, "p0".."p3" "d0".."d3" "o0" "f0" = "amount seconds at_ms"   leave
//	l:<replica>     zset live lease -> predicted end, ms; a lease of n slots has n members (lease, lease#2, ...)   finish, tick
//	c:<replica>     zset cooling lease -> ms until when                    every script that looks at the replica, tick
//	free:<model>    zset of usable replicas with a free slot -> rank; suspect ones behind all ready ones
//	wake            zset replica -> ms when it may become free by itself    tick
//	due             zset replica -> ms of its next probe                    leave
//	gen             the last generation given
//	q:<model>       zset waiting ticket -> order                            assign, finish, tick
//	h:<model>       set of waiting tickets that are held                    the same
//	pools           set of models with waiting tickets                      the same
//	t:<ticket>      hash of a ticket                                        finish, tick
//	ends            zset ticket -> hard end, ms                             finish, tick
//	offers          zset offered ticket -> ms when the offer is taken back   take, finish, tick
//	owners          zset owner -> ms when it counts as dead                  resign, tick
//	known           set of owners that have beaten                           resign, tick
//	o:<owner>       set of its tickets                                       finish, tick
//	a:<owner>       hash ticket -> lease offered to it                        take, finish, tick
//	k:<key>         hash of the key's buckets                                expires when they are full
//	kc:<key>        set of the key's unfinished tickets                      finish, tick
//	kq:<key>        set of the key's waiting tickets                         assign, finish, tick
//	pulse, noreap, turn   strings of tick                                    expire
//	owner:<owner>, fleet  channels
//
// A zset or set that becomes empty is gone. Occupied slots of a replica are ZCARD l + ZCARD c.
type keys struct {
	prefix string // "{namespace}:"
}

// newKeys refuses what would break the hash tag.
func newKeys(namespace string) (keys, error) {
	if !validID(namespace) {
		return keys{}, fmt.Errorf("redis namespace %q: use 1 to 64 characters of [A-Za-z0-9._:-]", namespace)
	}
	return keys{prefix: "{" + namespace + "}:"}, nil
}

func (k keys) replica(id string) string      { return k.prefix + "r:" + id }
func (k keys) offered(owner string) string   { return k.prefix + "a:" + owner }
func (k keys) ownerNews(owner string) string { return k.prefix + "owner:" + owner }
func (k keys) fleetNews() string             { return k.prefix + "fleet" }

// validID reports whether an id can stand in key names, lease members and messages: 1 to 64 bytes of [A-Za-z0-9._:-].
func validID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}
