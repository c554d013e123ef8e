package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func BenchmarkParseHead(b *testing.B) {
	for _, size := range []int{200, 30 << 10, 2 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			text := strings.Repeat(`The quick brown fox jumps over the lazy dog.\n`, size/46+1)[:size-110]
			text = strings.TrimRight(text, `\`)
			body := []byte(`{"model":"qwen3.5-9b","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"` + text + `"}]}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseHead(ChatCompletions, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseHeadChinese(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("世界你好", 50_000) + `"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := ParseHead(ChatCompletions, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseHeadEscapes(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(`\u4e16\u754c`, 50_000) + `"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := ParseHead(ChatCompletions, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSplice(b *testing.B) {
	h := mustHead(b, `{"model":"alias","stream":false,"messages":[{"role":"user","content":"`+strings.Repeat("x", 30<<10)+`"}],"id_slot":3}`)
	e := Edits{Model: "qwen", IncludeUsage: true, Drop: []string{"id_slot"},
		Defaults: []Field{{"max_tokens", json.RawMessage("1024")}, {"chat_template_kwargs", json.RawMessage(`{"enable_thinking":false}`)}},
		Set:      []Field{{"stream", json.RawMessage("true")}, {"return_progress", json.RawMessage("true")}, {"sse_ping_interval", json.RawMessage("5")}}}
	b.ReportAllocs()
	for b.Loop() {
		h.Splice(e)
	}
}

func tokenChunk(b *testing.B) []byte {
	for e, err := range Events(bytes.NewReader(golden(b, "chat-stream-usage.sse")), 1<<20) {
		if err != nil {
			b.Fatal(err)
		}
		if bytes.Contains(e.Data, []byte("quire")) {
			return bytes.Clone(e.Data)
		}
	}
	b.Fatal("no such chunk")
	return nil
}

func BenchmarkParseChunk(b *testing.B) {
	data := tokenChunk(b)
	b.ReportAllocs()
	for b.Loop() {
		if c, err := ParseChunk(ChatCompletions, data); err != nil || !c.Content {
			b.Fatal(c, err)
		}
	}
}

func BenchmarkAppendChunk(b *testing.B) {
	data := tokenChunk(b)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendChunk(dst[:0], data, ChunkEdits{Model: "qwen3.5-9b", DropUsage: true, DropTimings: true, DropProgress: true})
	}
}

func BenchmarkEvents(b *testing.B) {
	event := append(append([]byte("data: "), tokenChunk(b)...), "\n\n"...)
	stream := bytes.Repeat(event, 1000)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range Events(bytes.NewReader(stream), 1<<20) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkAssemble(b *testing.B) {
	data := tokenChunk(b)
	b.ReportAllocs()
	for b.Loop() {
		a := NewAssembler(ChatCompletions, 1<<20)
		for range 100 {
			if err := a.Add(data); err != nil {
				b.Fatal(err)
			}
		}
	}
}
