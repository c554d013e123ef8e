package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// UpstreamConfig shapes an [Upstream]. The zero value is usable.
type UpstreamConfig struct {
	Model  string // the model it says it runs ["bench"]
	Tokens int    // content events of a stream [8]
	Slots  int    // slots it says it has [512]
}

// Upstream answers like llama-server b10587, at once: JSON or events, on the
// routes a gateway calls. Every answer is built beforehand, so that the cost
// measured belongs to whatever stands in front. Connections are kept alive,
// which llama-server itself does not do after a stream. It is safe for
// concurrent use.
type Upstream struct {
	mux *http.ServeMux
}

// NewUpstream builds the answers.
func NewUpstream(cfg UpstreamConfig) *Upstream {
	if cfg.Model == "" {
		cfg.Model = "bench"
	}
	if cfg.Tokens <= 0 {
		cfg.Tokens = 8
	}
	if cfg.Slots <= 0 {
		cfg.Slots = 512
	}
	u := &Upstream{mux: http.NewServeMux()}
	u.mux.HandleFunc("POST /v1/chat/completions", completion(chatAnswer(cfg), chatEvents(cfg)))
	u.mux.HandleFunc("POST /v1/completions", completion(completionAnswer(cfg), completionEvents(cfg)))
	u.mux.HandleFunc("GET /health", fixed(`{"status":"ok"}`))
	u.mux.HandleFunc("GET /v1/models", fixed(fmt.Sprintf(
		`{"object":"list","data":[{"id":%q,"aliases":[%q],"tags":[],"object":"model","created":1796111518,"owned_by":"llamacpp","meta":{"vocab_type":true,"n_vocab":928,"n_ctx":%d,"n_ctx_train":32768,"n_embd":128,"n_params":533120,"size":2132480,"ftype":"all F32"}}]}`,
		cfg.Model, cfg.Model, upstreamContext)))
	u.mux.HandleFunc("GET /props", fixed(fmt.Sprintf(
		`{"default_generation_settings":{"n_ctx":%d},"total_slots":%d,"model_alias":%q,"modalities":{"vision":false,"video":false,"audio":false},"endpoint_slots":true,"endpoint_props":false,"endpoint_metrics":false,"build_info":%q,"is_sleeping":false}`,
		upstreamContext, cfg.Slots, cfg.Model, upstreamBuild)))
	u.mux.HandleFunc("GET /slots", fixed(idleSlots(cfg.Slots)))
	return u
}

const (
	upstreamBuild   = "b10587-3f545becc"
	upstreamContext = 32768
	upstreamPrompt  = 17       // prompt tokens it says it read
	maxRequestBytes = 16 << 20 // read from a caller at most
)

func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) { u.mux.ServeHTTP(w, r) }

// Serve answers on l until ctx ends. It closes l. A nil certificate means plain HTTP.
func (u *Upstream) Serve(ctx context.Context, l net.Listener, certificate *tls.Certificate) error {
	if certificate != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}})
	}
	server := &http.Server{Handler: u, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve instant upstream: %w", err)
	}
	return nil
}

// fixed answers with one JSON body.
func fixed(body string) http.HandlerFunc {
	raw := []byte(body)
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, raw) }
}

func writeJSON(w http.ResponseWriter, status int, raw []byte) {
	h := w.Header()
	h.Set("Server", "llama.cpp")
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the caller has gone: nobody left to tell
}

// completion answers a request with answer, or with events, each flushed by
// itself as an engine does, and the last two together with the end. The last
// event but one carries usage and is sent only to those who asked.
func completion(answer []byte, s stream) http.HandlerFunc {
	badJSON := []byte(`{"error":{"code":500,"message":"invalid JSON","type":"server_error"}}`)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
		var asked struct {
			Stream        bool          `json:"stream"`
			StreamOptions streamOptions `json:"stream_options"`
		}
		if err != nil || json.Unmarshal(body, &asked) != nil {
			writeJSON(w, http.StatusInternalServerError, badJSON)
			return
		}
		if !asked.Stream {
			writeJSON(w, http.StatusOK, answer)
			return
		}
		h := w.Header()
		h.Set("Server", "llama.cpp")
		h.Set("X-Accel-Buffering", "no")
		h.Set("Content-Type", "text/event-stream")
		controller := http.NewResponseController(w)
		for _, event := range s.content {
			if _, err := w.Write(event); err != nil {
				return
			}
			if err := controller.Flush(); err != nil {
				return
			}
		}
		end := s.end
		if asked.StreamOptions.IncludeUsage {
			end = s.endWithUsage
		}
		_, _ = w.Write(end) // the caller has gone: nobody left to tell
	}
}
