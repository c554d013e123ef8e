package fakephone

import (
	_ "embed"
	"encoding/json"
)

// profilesJSON holds the fleet's profiles; the simulator reads the same figures.
//
//go:embed profiles.json
var profilesJSON []byte

// Profile is how fast and how reliable one kind of phone is. Figures are of a cold phone.
type Profile struct {
	Name   string `json:"name"`
	SoC    string `json:"soc"`
	Model  string `json:"model"`
	Engine string `json:"engine"`
	// RAMGB is the phone's memory in gigabytes.
	RAMGB int `json:"ram_gb"`
	// Slots is how many requests it works on at once.
	Slots int `json:"slots"`
	// PrefillShortTPS is the prefill speed in tokens per second for a short prompt.
	PrefillShortTPS float64 `json:"prefill_short_tps"`
	// Prefill7kTPS is the mean prefill speed of a 7,000-token prompt; it follows from PrefillShortTPS and QuadS.
	Prefill7kTPS float64 `json:"prefill_7k_tps"`
	// QuadS is the quadratic part of the prefill time in seconds per token squared.
	QuadS float64 `json:"quad_s"`
	// DecodeTPS is the decode speed in tokens per second, all slots together.
	DecodeTPS float64 `json:"decode_tps"`
	// ThrottleF is the share of the speed that is left when the phone is hot; 0 means it never throttles.
	ThrottleF float64 `json:"throttle_f"`
	// ThrottleTauS is the time constant of heating in seconds; cooling takes four times as long.
	ThrottleTauS float64 `json:"throttle_tau_s"`
	// RTTMS and JitterMS are the round trip and its largest deviation in milliseconds.
	RTTMS    float64 `json:"rtt_ms"`
	JitterMS float64 `json:"jitter_ms"`
	// MTBOS and OutageS are the mean time between outages and their mean length in seconds; the phone itself does not use them.
	MTBOS   float64 `json:"mtbo_s"`
	OutageS float64 `json:"outage_s"`
	// Source says where the figures come from: S seed, M measured, D derived, A assumed.
	Source string `json:"src"`
}

// Profiles returns all known profiles, in the order of the file.
func Profiles() []Profile {
	var file struct {
		Profiles []Profile `json:"profiles"`
	}
	if err := json.Unmarshal(profilesJSON, &file); err != nil {
		return nil // the file is part of the build; TestProfiles reads it
	}
	return file.Profiles
}

// ProfileByName returns the profile of that name, and whether there is one.
func ProfileByName(name string) (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// prefillSeconds is the time a cold phone needs for the prompt tokens from (inclusive) to until (exclusive).
func (p Profile) prefillSeconds(from, until int) float64 {
	a, b := float64(from), float64(until)
	return (b-a)/p.PrefillShortTPS + p.QuadS*(b*b-a*a)
}
