package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"phonebank/balancer"
)

// maxAnswer bounds what is read of a phone's answer to a probe. llama-server's /props is 3 KiB and a long chat template.
const maxAnswer = 64 << 10

// Facts is what a phone says about itself. Zero fields were not said.
type Facts struct {
	Models   []string // names it answers for; at most 16
	Build    string   // llama.cpp: build number and commit
	Slots    int
	Context  int // tokens of one slot
	Sleeping bool
}

// Serves reports whether the phone answers for model, as far as it said.
func (f Facts) Serves(model string) bool {
	return model == "" || len(f.Models) == 0 || slices.Contains(f.Models, model)
}

// verdict is the outcome of one probe.
type verdict struct {
	kind       Kind // Alive, ProbeBusy, Unreachable, Refused or Broken
	timedOut   bool
	leaveAlone time.Duration
	reason     string
	facts      *Facts // when it was asked for and told
}

// ask puts one phone's questions within ctx's deadline.
//
// llama-server answers /health without a key and while its engine works; /props needs the key and costs a little more, so it is for detail.
// /slots and /metrics are never asked: polled too often they keep the engine from noticing a cancel. Other engines have /v1/models only.
func ask(ctx context.Context, t Target, detail bool) verdict {
	base := strings.TrimSuffix(strings.TrimSuffix(t.URL, "/"), "/v1")
	if t.Engine != balancer.LlamaCpp {
		body, v := get(ctx, t, base+"/v1/models", t.Header)
		if v.kind == Alive {
			v.facts = modelFacts(t.Engine, body)
		}
		return v
	}
	_, v := get(ctx, t, base+"/health", nil)
	if v.kind != Alive || !detail {
		return v
	}
	body, v := get(ctx, t, base+"/props", t.Header)
	if v.kind == Alive {
		v.facts = propsFacts(body)
	}
	return v
}

// get asks one question and judges the answer. The body is only returned with Alive.
func get(ctx context.Context, t Target, address string, header http.Header) ([]byte, verdict) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, verdict{kind: Refused, reason: "the phone's address is not a URL"}
	}
	for name, values := range header {
		req.Header[name] = slices.Clone(values)
	}
	var client http.Client
	if t.Client != nil {
		client = *t.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return nil, transportVerdict(t, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	closeErr := resp.Body.Close()
	if err = errors.Join(err, closeErr); err != nil {
		return nil, transportVerdict(t, err)
	}
	path := req.URL.Path
	if len(body) > maxAnswer {
		return nil, verdict{kind: Broken, reason: path + ": the answer is too long"}
	}
	return body, statusVerdict(resp, path, isObject(body))
}

// statusVerdict judges an answer that arrived whole.
func statusVerdict(resp *http.Response, path string, object bool) verdict {
	status := resp.StatusCode
	said := path + " says " + strconv.Itoa(status)
	wait := retryAfter(resp.Header)
	switch {
	case status == http.StatusOK && object:
		return verdict{kind: Alive}
	case status == http.StatusOK:
		return verdict{kind: Broken, reason: said + " but not in JSON"}
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && (object || wait > 0):
		return verdict{kind: ProbeBusy, leaveAlone: wait, reason: said}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return verdict{kind: Refused, reason: said + ": the phone refuses its key"}
	case status == http.StatusNotFound:
		return verdict{kind: Refused, reason: said + ": is this the right engine and address?"}
	default:
		return verdict{kind: Broken, reason: said}
	}
}

// transportVerdict judges a probe without an answer. Reasons are from a closed list: an error's own text names ports, and a reason that
// changes with every probe would be written with every probe.
func transportVerdict(t Target, err error) verdict {
	v := verdict{kind: Unreachable}
	netErr, isNet := errors.AsType[net.Error](err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	badCertificate = badCertificate || t.WrongIdentity != nil && t.WrongIdentity(err)
	_, badName := errors.AsType[*net.DNSError](err)
	switch {
	case badCertificate:
		return verdict{kind: Refused, reason: "the phone's certificate is not the expected one"}
	case errors.Is(err, context.DeadlineExceeded), isNet && netErr.Timeout():
		v.timedOut, v.reason = true, "no answer in time"
	case badName:
		v.reason = "unknown host"
	case errors.Is(err, syscall.ECONNREFUSED):
		v.reason = "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		v.reason = "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		v.reason = "connection closed"
	default:
		v.reason = "no connection"
	}
	return v
}

// isObject reports whether body is one JSON object.
func isObject(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) && json.Valid(body)
}

// retryAfter reads the header, in seconds or as a date. 0 when absent or senseless; Next bounds it.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// propsFacts reads llama-server's /props. Nil when it does not look like one.
func propsFacts(body []byte) *Facts {
	var p struct {
		Alias    string `json:"model_alias"`
		Build    string `json:"build_info"`
		Slots    int    `json:"total_slots"`
		Sleeping bool   `json:"is_sleeping"`
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil
	}
	f := &Facts{Build: cut(p.Build), Slots: p.Slots, Context: p.Settings.Context, Sleeping: p.Sleeping}
	if p.Alias != "" {
		f.Models = []string{cut(p.Alias)}
	}
	return f
}

// modelFacts reads /v1/models. MNN's names say nothing: one of its servers has a constant one.
func modelFacts(engine balancer.Engine, body []byte) *Facts {
	const most = 16
	var m struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil
	}
	f := &Facts{}
	if engine == balancer.MNN || len(m.Data) > most {
		return f
	}
	for _, d := range m.Data {
		f.Models = append(f.Models, cut(d.ID))
	}
	return f
}

// cut bounds a text of a phone.
func cut(s string) string {
	const most = 128
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
