package openai

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// seen is an Event with copied memory.
type seen struct {
	Raw, Data, Name  string
	Comment, Partial bool
}

func collect(t testing.TB, r io.Reader, limit int) ([]seen, error) {
	t.Helper()
	var all []seen
	for e, err := range Events(r, limit) {
		if err != nil {
			return all, err
		}
		all = append(all, seen{string(e.Raw), string(e.Data), e.Name, e.Comment, e.Partial})
	}
	return all, nil
}

func TestEvents(t *testing.T) {
	t.Parallel()
	data := func(raw, data string) seen { return seen{Raw: raw, Data: data} }
	gap := func(raw string) seen { return seen{Raw: raw, Comment: true} }
	part := func(raw, data string) seen { return seen{Raw: raw, Data: data, Partial: true} }
	tests := []struct {
		name, in string
		want     []seen
	}{
		{"empty", "", nil},
		{"LF", "data: a\n\ndata: b\n\n", []seen{data("data: a\n\n", "a"), data("data: b\n\n", "b")}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []seen{data("data: a\r\n\r\n", "a"), data("data: b\r\n\r\n", "b")}},
		{"CR", "data: a\r\rdata: b\r\r", []seen{data("data: a\r\r", "a"), data("data: b\r\r", "b")}},
		{"mixed", "data: a\r\n\ndata: b\n\r\ndata: c\r\n\rdata: d\n\rx", []seen{data("data: a\r\n\n", "a"), data("data: b\n\r\n", "b"), data("data: c\r\n\r", "c"), data("data: d\n\r", "d"), part("x", "")}},
		{"CR CR LF is one blank line more", "data: a\r\r\ndata: b\n\n", []seen{data("data: a\r\r", "a"), gap("\n"), data("data: b\n\n", "b")}},
		{"no space", "data:a\n\n", []seen{data("data:a\n\n", "a")}},
		{"one space only", "data:  a\n\n", []seen{data("data:  a\n\n", " a")}},
		{"no colon", "data\n\n", []seen{data("data\n\n", "")}},
		{"many lines", "data: a\ndata:b\ndata\n\n", []seen{data("data: a\ndata:b\ndata\n\n", "a\nb\n")}},
		{"two empty data lines", "data\ndata\n\n", []seen{data("data\ndata\n\n", "\n")}},
		{"other fields", "id: 1\nevent: error\nretry: 5\ndata: a\nfoo: b\n\n", []seen{{Raw: "id: 1\nevent: error\nretry: 5\ndata: a\nfoo: b\n\n", Data: "a", Name: "error"}}},
		{"event without data", "event: x\n\n", []seen{{Raw: "event: x\n\n", Name: "x"}}},
		{"ping of llama-server", ":\n\ndata: a\n\n", []seen{gap(":\n"), gap("\n"), data("data: a\n\n", "a")}},
		{"comment before data", ": wait\ndata: a\n\n", []seen{gap(": wait\n"), data("data: a\n\n", "a")}},
		{"comment inside", "data: a\n: x\ndata: b\n\n", []seen{data("data: a\n: x\ndata: b\n\n", "a\nb")}},
		{"blank lines", "\n\r\n\rdata: a\n\n\n", []seen{gap("\n"), gap("\r\n"), gap("\r"), data("data: a\n\n", "a"), gap("\n")}},
		{"BOM", "\xef\xbb\xbfdata: a\n\n", []seen{data("\xef\xbb\xbfdata: a\n\n", "a")}},
		{"BOM and nothing", "\xef\xbb\xbf\n\ndata: a\n\n", []seen{gap("\xef\xbb\xbf\n"), gap("\n"), data("data: a\n\n", "a")}},
		{"no final blank line", "data: a\n\ndata: [DONE]\n", []seen{data("data: a\n\n", "a"), part("data: [DONE]\n", "[DONE]")}},
		{"no final line end", "data: [DONE]", []seen{part("data: [DONE]", "[DONE]")}},
		{"final CR", "data: a\r", []seen{part("data: a\r", "a")}},
		{"final CRLF CR", "data: a\r\n\r", []seen{data("data: a\r\n\r", "a")}},
		{"cut in a name", "da", []seen{part("da", "")}},
		{"cut comment", ": x", []seen{gap(": x")}},
		{"UTF-8", "data: 世界😀\n\n", []seen{data("data: 世界😀\n\n", "世界😀")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in)), iotest.HalfReader(strings.NewReader(tt.in))} {
				got, err := collect(t, r, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%T (-want +got):\n%s", r, diff)
				}
			}
		})
	}
}

func TestEventDone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"data: [DONE]\n\n": true, "data:[DONE]\r\n\r\n": true, "data: [DONE]": true, "data: [DONE] \n\n": true,
		"data: {}\n\n": false, ": [DONE]\n": false, "data: [DONE\n\n": false, "event: [DONE]\n\n": false,
	} {
		for e, err := range Events(strings.NewReader(in), 100) {
			if err != nil || e.Done() != want {
				t.Errorf("%q: done %t, error %v, want %t", in, e.Done(), err, want)
			}
			break
		}
	}
}

// An event must not wait for what comes behind it.
func TestEventsYieldsAtOnce(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"data: a\n\n", "data: a\r\n\r\n", "data: a\r\r", ": c\n", "\n"} {
		r, w := io.Pipe()
		go func() { // ends when the reader is closed below
			for i := range len(in) {
				if _, err := w.Write([]byte(in[i : i+1])); err != nil {
					return
				}
			}
		}()
		for e, err := range Events(r, 100) { // the writer never closes: waiting for more would hang
			if err != nil || string(e.Raw) != in {
				t.Errorf("event %q, error %v, want %q", e.Raw, err, in)
			}
			break
		}
		_ = r.Close()
	}
}

func TestEventsMore(t *testing.T) {
	t.Parallel()
	reads := []string{"data: a\n\ndata: b\n\ndata: c\n\nda", "ta: d\n\n", "data: e\n\n"}
	want := map[string]bool{"a": true, "b": true, "c": false, "d": false, "e": false}
	var got []string
	for e, err := range Events(&batches{reads: reads}, 100) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Data))
		if e.More != want[string(e.Data)] {
			t.Errorf("event %s: more %t", e.Data, e.More)
		}
	}
	if len(got) != 5 {
		t.Errorf("events %q", got)
	}
}

// batches returns one string a read.
type batches struct{ reads []string }

func (b *batches) Read(p []byte) (int, error) {
	if len(b.reads) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.reads[0])
	if b.reads[0] = b.reads[0][n:]; b.reads[0] == "" {
		b.reads = b.reads[1:]
	}
	return n, nil
}

func TestEventsLargeLines(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64 << 10, 70_000, 1_100_000, 8 << 20} {
		big := strings.Repeat("x", size)
		in := "data: a\n\ndata: " + big + "\n\ndata: b\n\ndata: [DONE]\n\n"
		got, err := collect(t, strings.NewReader(in), 9<<20)
		if err != nil || len(got) != 4 {
			t.Fatalf("%d bytes: %d events, error %v", size, len(got), err)
		}
		if got[1].Data != big || got[2].Data != "b" || got[3].Data != "[DONE]" {
			t.Errorf("%d bytes: events differ", size)
		}
	}
}

func TestEventsBufferShrinks(t *testing.T) {
	t.Parallel()
	in := "data: " + strings.Repeat("x", 4<<20) + "\n\n" + strings.Repeat("data: a\n\n", 2000)
	p := splitter{r: strings.NewReader(in), limit: 8 << 20}
	p.run(func(Event, error) bool { return true })
	if cap(p.buf) > keepBuffer {
		t.Errorf("buffer of %d bytes is kept after a large event", cap(p.buf))
	}
}

// Neither kind of line end may make the search for the other quadratic.
func TestEventsManyShortLines(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\r", "\n", "\r\n"} {
		in := strings.Repeat("x"+end, 1<<20) + "data: a" + end + end
		got, err := collect(t, strings.NewReader(in), 8<<20)
		if err != nil || len(got) != 1 || got[0].Data != "a" {
			t.Errorf("%q: %d events, error %v", end, len(got), err)
		}
	}
}

func TestEventsLimit(t *testing.T) {
	t.Parallel()
	ev := "data: 123456\n\n" // 14 bytes
	for _, r := range []func(string) io.Reader{
		func(s string) io.Reader { return strings.NewReader(s) },
		func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) },
	} {
		if got, err := collect(t, r(ev+ev), 14); err != nil || len(got) != 2 {
			t.Errorf("at the limit: %d events, error %v", len(got), err)
		}
		got, err := collect(t, r("data: 1\n\n"+ev+"data: 2\n\n"), 13)
		if !errors.Is(err, ErrEventTooLarge) || len(got) != 1 {
			t.Errorf("over the limit: %d events, error %v", len(got), err)
		}
		if got, err := collect(t, r("data: 1\n\n"+strings.Repeat("y", 100)), 13); !errors.Is(err, ErrEventTooLarge) || len(got) != 1 {
			t.Errorf("endless line: %d events, error %v", len(got), err)
		}
	}
}

func TestEventsReadErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("reset")
	got, err := collect(t, io.MultiReader(strings.NewReader("data: a\n\ndata: cut"), iotest.ErrReader(broken)), 100)
	if !errors.Is(err, broken) || len(got) != 1 || got[0].Data != "a" {
		t.Errorf("events %v, error %v", got, err)
	}
	got, err = collect(t, dataAndError{broken}, 100)
	if !errors.Is(err, broken) || len(got) != 1 || got[0].Data != "a" {
		t.Errorf("data beside an error: events %v, error %v", got, err)
	}
	if _, err := collect(t, nothing{}, 100); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that returns nothing: error %v", err)
	}
}

type dataAndError struct{ err error }

func (d dataAndError) Read(p []byte) (int, error) { return copy(p, "data: a\n\n"), d.err }

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestEventsGoldens(t *testing.T) {
	t.Parallel()
	for _, name := range goldens(t, ".sse") {
		in := golden(t, name)
		got, err := collect(t, bytes.NewReader(in), 1<<20)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var all strings.Builder
		for _, e := range got {
			all.WriteString(e.Raw)
			if e.Comment != (strings.HasPrefix(e.Raw, ":") || e.Raw == "\n") {
				t.Errorf("%s: %q has comment %t", name, e.Raw, e.Comment)
			}
		}
		if all.String() != string(in) {
			t.Errorf("%s: the events are not the stream", name)
		}
	}
}

// randomReader cuts the stream at places that seed decides.
type randomReader struct {
	data []byte
	rng  *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+r.rng.IntN(40))], r.data)
	r.data = r.data[n:]
	return n, nil
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "data: a\r\n\r\ndata:b\rdata: c\r\r", ":\n\n: x\ndata\n\n", "\xef\xbb\xbfdata: [DONE]", "\r\r\n\n\revent: e\r\n\r\n"} {
		f.Add([]byte(s), uint64(1))
	}
	for _, name := range []string{"chat-stream-eos.sse", "sse-ping-progress.sse"} {
		f.Add(golden(f, name), uint64(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		const limit = 1 << 12
		want, wantErr := collect(t, bytes.NewReader(stream), limit)
		got, err := collect(t, &randomReader{data: stream, rng: rand.New(rand.NewPCG(seed, 0))}, limit)
		if !errors.Is(err, wantErr) {
			t.Fatalf("split: error %v, whole: %v", err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("split differs (-whole +split):\n%s", diff)
		}
		var all strings.Builder
		for _, e := range got {
			all.WriteString(e.Raw)
		}
		if err == nil && all.String() != string(stream) {
			t.Fatalf("events %q are not the stream %q", all.String(), stream)
		}
	})
}
