package main

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
)

// ownFields are the request fields that a model's defaults cannot set: the
// gateway sets them itself or they are the request.
func ownFields() []string {
	return []string{
		"id_slot", "input", "messages", "model", "n", "prompt", "return_progress",
		"sse_ping_interval", "stream", "stream_options", "timings_per_token",
	}
}

// ownHeaders are the headers a replica cannot be given.
func ownHeaders() []string {
	return []string{
		"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}
}

// validModels returns the ids of the models. Nil means that some id is missing
// or wrong, so that a replica's model cannot be judged.
func validModels(f *collector, models []Model) map[string]int {
	if len(models) == 0 {
		f.add("models", "is empty; list at least one model")
	}
	ids, complete := map[string]int{}, len(models) > 0
	for i, m := range models {
		path := fmt.Sprintf("models[%d]", i)
		validID(f, path, m.ID, ids, i)
		complete = complete && idPattern.MatchString(m.ID)
		if len(m.Upstream) > 256 || strings.ContainsFunc(m.Upstream, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			f.add(path+".upstream", "is not a model's name; use at most 256 bytes without control characters")
		}
		between(f, path+".context", m.Context, 1, 10_000_000)
		if f.has(path+".max_tokens") && (m.MaxTokens < 1 || m.MaxTokens >= m.Context) {
			f.add(path+".max_tokens", "is out of range; want 1 to less than the context, %d", m.Context)
		}
		for _, field := range m.Defaults {
			name := join(path+".defaults", clip(field.Name))
			switch {
			case slices.Contains(ownFields(), field.Name):
				f.add(name, "cannot have a default; it belongs to the caller or the gateway")
			case field.Name == "max_tokens" || field.Name == "max_completion_tokens":
				f.add(name, "cannot have a default; set the model's max_tokens instead")
			}
		}
	}
	if !complete {
		return nil
	}
	return ids
}

func validReplicas(f *collector, replicas []Replica, models map[string]int) {
	ids, targets := map[string]int{}, map[string]int{}
	for i, r := range replicas {
		path := fmt.Sprintf("replicas[%d]", i)
		validID(f, path, r.ID, ids, i)
		if r.validURL(f, path) {
			target := strings.TrimSuffix(strings.TrimSuffix(r.URL, "/"), "/v1") + " " + r.Model
			if first, taken := targets[target]; taken {
				f.add(path+".url", "is the same phone and model as replicas[%d]; to use more of it, raise slots there", first)
			} else {
				targets[target] = i
			}
		}
		r.validate(f, path, models)
		r.TLS.validate(f, path+".tls", strings.HasPrefix(r.URL, "http://"))
	}
}

func (r Replica) validURL(f *collector, path string) bool {
	path += ".url"
	if r.URL == "" {
		f.add(path, "is required")
		return false
	}
	// No fault quotes the URL: it may hold a credential.
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http"):
		f.add(path, "is not the URL of a phone; write https://HOST or https://HOST:PORT")
	case u.User != nil:
		f.add(path, "holds a user name; a phone's credential goes into key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		f.add(path, "ends in a query or a fragment; remove it")
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !r.TLS.Insecure:
		f.add(path, "would send prompts and the key in the clear; use https, or tls: {insecure: true} if that is meant")
	default:
		return true
	}
	return false
}

func (r Replica) validate(f *collector, path string, models map[string]int) {
	if r.Model == "" {
		f.add(path+".model", "is required")
	} else if _, known := models[r.Model]; !known && models != nil {
		f.add(path+".model", "is not the id of a model in models%s", didYouMean(r.Model, slices.Sorted(maps.Keys(models))))
	}
	oneOf(f, path+".engine", r.Engine, "llama.cpp", "mnn", "openai")
	between(f, path+".slots", r.Slots, 1, 64)
	if r.Engine == "mnn" && r.Slots > 1 {
		f.add(path+".slots", "is too many; MNN serves one request at a time")
	}
	between(f, path+".context", r.Context, 0, 10_000_000)
	validSecret(f, path+".key", r.Key, false)
	for name, speed := range map[string]float64{"prefill_tps": r.Prior.PrefillTPS, "decode_tps": r.Prior.DecodeTPS} {
		if speed <= 0 || speed > 1e6 {
			f.add(path+".prior."+name, "is out of range; want tokens a second, more than 0")
		}
	}
	for name, value := range r.Headers {
		validHeader(f, join(path+".headers", clip(name)), name, string(value))
	}
}

func validHeader(f *collector, path, name, value string) {
	isToken := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isToken(r) }):
		f.add(path, "is not a header's name")
	case canonical == "Authorization":
		f.add(path, "cannot be set here; a phone's credential goes into key")
	case slices.Contains(ownHeaders(), canonical):
		f.add(path, "cannot be set; it belongs to the connection")
	case len(value) > 4<<10 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		f.add(path, "is not a header's value; use at most 4096 printable ASCII characters")
	}
}

func (t TLSConfig) validate(f *collector, path string, plain bool) {
	if plain && (t.CA != "" || t.Pin != "") {
		f.add(path, "has no effect on an http:// URL; remove it or use https")
		return
	}
	if t.Insecure && (t.CA != "" || t.Pin != "") {
		f.add(path+".insecure", "contradicts ca and pin; keep one or the other")
	}
	if t.CA != "" {
		if text, err := os.ReadFile(string(t.CA)); err != nil {
			f.add(path+".ca", "%v", err)
		} else if !x509.NewCertPool().AppendCertsFromPEM(text) {
			f.add(path+".ca", "holds no certificate; want PEM blocks of type CERTIFICATE")
		}
	}
	if t.Pin != "" {
		hash, ok := strings.CutPrefix(t.Pin, "sha256/")
		sum, err := base64.StdEncoding.Strict().DecodeString(hash)
		if !ok || err != nil || len(sum) != sha256.Size {
			f.add(path+".pin", "is not a pin; write sha256/ and the base64 of the SHA-256 of the public key, 44 characters")
		}
	}
}
