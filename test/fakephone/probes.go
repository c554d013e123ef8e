package fakephone

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

type modelMeta struct {
	VocabType    bool   `json:"vocab_type"`
	Vocab        int    `json:"n_vocab"`
	Context      int    `json:"n_ctx"`
	TrainContext int    `json:"n_ctx_train"`
	Embedding    int    `json:"n_embd"`
	Params       int64  `json:"n_params"`
	Size         int64  `json:"size"`
	FileType     string `json:"ftype"`
}

type modelDetails struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Parameters   string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

type ollamaModel struct {
	Name         string       `json:"name"`
	Model        string       `json:"model"`
	ModifiedAt   string       `json:"modified_at"`
	Size         string       `json:"size"`
	Digest       string       `json:"digest"`
	Type         string       `json:"type"`
	Description  string       `json:"description"`
	Tags         []string     `json:"tags"`
	Capabilities []string     `json:"capabilities"`
	Parameters   string       `json:"parameters"`
	Details      modelDetails `json:"details"`
}

type modelEntry struct {
	ID      string    `json:"id"`
	Aliases []string  `json:"aliases"`
	Tags    []string  `json:"tags"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	OwnedBy string    `json:"owned_by"`
	Meta    modelMeta `json:"meta"`
}

const (
	trainContext = 32768
	fileType     = "Q4_K - Medium"
)

func modelsBody(cfg Config) []byte {
	return encode(struct {
		Models []ollamaModel `json:"models"`
		Object string        `json:"object"`
		Data   []modelEntry  `json:"data"`
	}{
		Models: []ollamaModel{{
			Name: cfg.Model, Model: cfg.Model, Type: "model", Tags: []string{""}, Capabilities: []string{"completion"},
			Details: modelDetails{Format: "gguf", Families: []string{""}},
		}},
		Object: "list",
		Data: []modelEntry{{
			ID: cfg.Model, Aliases: []string{cfg.Model}, Tags: []string{}, Object: "model", Created: time.Now().Unix(), OwnedBy: "llamacpp",
			Meta: modelMeta{VocabType: true, Vocab: 151936, Context: cfg.Context, TrainContext: trainContext, Embedding: 2560,
				Params: 4_000_000_000, Size: 2_500_000_000, FileType: fileType},
		}},
	})
}

type slotParams struct {
	Seed        uint32 `json:"seed"`
	Temperature number `json:"temperature"`
	MaxTokens   int    `json:"max_tokens"`
	Predict     int    `json:"n_predict"`
	Stream      bool   `json:"stream"`
}

func newSlotParams(limit int, stream bool) slotParams {
	return slotParams{Seed: 4294967295, Temperature: 0.8, MaxTokens: limit, Predict: limit, Stream: stream}
}

type generationSettings struct {
	Params  slotParams `json:"params"`
	Context int        `json:"n_ctx"`
}

type modalities struct {
	Vision bool `json:"vision"`
	Video  bool `json:"video"`
	Audio  bool `json:"audio"`
}

type templateCaps struct {
	ObjectArguments bool `json:"supports_object_arguments"`
	ParallelCalls   bool `json:"supports_parallel_tool_calls"`
	SystemRole      bool `json:"supports_system_role"`
	ToolCalls       bool `json:"supports_tool_calls"`
	Tools           bool `json:"supports_tools"`
	TypedContent    bool `json:"supports_typed_content"`
}

type props struct {
	Settings     generationSettings `json:"default_generation_settings"`
	Slots        int                `json:"total_slots"`
	Alias        string             `json:"model_alias"`
	FileType     string             `json:"model_ftype"`
	Path         string             `json:"model_path"`
	Modalities   modalities         `json:"modalities"`
	HasSlots     bool               `json:"endpoint_slots"`
	HasProps     bool               `json:"endpoint_props"`
	HasMetrics   bool               `json:"endpoint_metrics"`
	UI           bool               `json:"ui"`
	Template     string             `json:"chat_template"`
	TemplateCaps templateCaps       `json:"chat_template_caps"`
	BOS          string             `json:"bos_token"`
	EOS          string             `json:"eos_token"`
	Build        string             `json:"build_info"`
	Sleeping     bool               `json:"is_sleeping"`
}

func propsBody(cfg Config) []byte {
	const template = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}" +
		"{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
	return encode(props{
		Settings: generationSettings{newSlotParams(-1, false), cfg.Context},
		Slots:    cfg.Slots, Alias: cfg.Model, FileType: fileType, Path: "models/" + cfg.Model + ".gguf",
		HasSlots: true, HasMetrics: true, Template: template, TemplateCaps: templateCaps{SystemRole: true},
		BOS: "<|endoftext|>", EOS: "<|im_end|>", Build: cfg.Build,
	})
}

type slotView struct {
	ID         int  `json:"id"`
	Context    int  `json:"n_ctx"`
	Specul     bool `json:"speculative"`
	Processing bool `json:"is_processing"`
	*slotTask       // absent before the first task
}

type slotTask struct {
	Task      int         `json:"id_task"`
	PromptN   int         `json:"n_prompt_tokens"`
	Processed int         `json:"n_prompt_tokens_processed"`
	Cached    int         `json:"n_prompt_tokens_cache"`
	Params    slotParams  `json:"params"`
	Next      []nextToken `json:"next_token"`
}

type nextToken struct {
	HasNext    bool `json:"has_next_token"`
	HasNewLine bool `json:"has_new_line"`
	Remain     int  `json:"n_remain"`
	Decoded    int  `json:"n_decoded"`
}

// slots answers GET /slots.
func (g *generation) slots(w http.ResponseWriter, r *http.Request) {
	e := g.engine
	e.mu.Lock()
	full := e.busy == len(e.slots)
	views := make([]slotView, len(e.slots))
	for i, s := range e.slots {
		views[i] = slotView{ID: i, Context: e.cfg.Context, Processing: s.busy}
		if s.task > 0 {
			views[i].slotTask = &slotTask{
				Task: s.task, PromptN: s.promptN + s.decoded, Processed: s.processed, Params: newSlotParams(s.limit, s.stream),
				Next: []nextToken{{HasNext: s.busy && s.decoded > 0, Remain: s.remain, Decoded: s.decoded}},
			}
		}
	}
	e.mu.Unlock()
	if full && r.URL.Query().Has("fail_on_no_slot") {
		writeError(w, &apiError{status: http.StatusServiceUnavailable, kind: "unavailable_error", message: "no slot available"})
		return
	}
	writeJSON(w, http.StatusOK, encode(views))
}

// metrics answers GET /metrics.
func (g *generation) metrics(w http.ResponseWriter) {
	e := g.engine
	e.mu.Lock()
	t, busy, deferred, perDecode := e.totals, e.busy, len(e.queue), 0.0
	if e.decodes > 0 {
		perDecode = float64(e.takers) / float64(e.decodes)
	}
	decodes := e.decodes
	e.mu.Unlock()
	rate := func(n int, d time.Duration) float64 {
		if d <= 0 {
			return 0
		}
		return float64(n) / d.Seconds()
	}
	var b strings.Builder
	add := func(name, kind, help string, value float64) {
		fmt.Fprintf(&b, "# HELP llamacpp:%[1]s %[3]s\n# TYPE llamacpp:%[1]s %[2]s\nllamacpp:%[1]s %[4]g\n", name, kind, help, value)
	}
	add("prompt_tokens_total", "counter", "Number of prompt tokens processed, excluding cached tokens", float64(t.promptTokens))
	add("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", 0)
	add("prompt_seconds_total", "counter", "Total time spent processing prompts", t.prompt.Seconds())
	add("tokens_predicted_total", "counter", "Number of generation tokens processed", float64(t.predictedTokens))
	add("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens", t.predicted.Seconds())
	add("n_decode_total", "counter", "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding", float64(decodes))
	add("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)", float64(t.maxTokens))
	add("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s", rate(t.promptTokens, t.prompt))
	add("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s", rate(t.predictedTokens, t.predicted))
	add("requests_processing", "gauge", "Number of requests processing", float64(busy))
	add("requests_deferred", "gauge", "Number of requests deferred", float64(deferred))
	add("n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call", perDecode)
	w.Header().Set("Process-Start-Time-Unix", fmt.Sprint(g.started.UnixMicro()))
	write(w, http.StatusOK, "text/plain; version=0.0.4", []byte(b.String()))
}
