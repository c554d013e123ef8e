package fakephone

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The files in testdata are transcripts of llama-server b10587: a request and its answer, with "\r\n" shown where it was on the wire
// and, for streams, "[+t ms, n B]" before the n bytes of each read.

// transcript is one of them as bytes on the wire.
type transcript struct {
	method, path string
	header       http.Header
	body         []byte
	response     []byte
}

func readTranscript(t *testing.T, name string) transcript {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), ">>> REQUEST (\\r\\n shown where sent)\n")
	request, response, ok2 := strings.Cut(rest, "\n<<< RESPONSE ")
	_, response, ok3 := strings.Cut(response, "\n")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s: not a transcript", name)
	}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(onWire(request))))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	body, _ := io.ReadAll(req.Body) // some are shortened in the middle
	return transcript{req.Method, req.URL.String(), req.Header, body, joinReads(t, response)}
}

func onWire(s string) string { return strings.ReplaceAll(s, "\\r\\n\n", "\r\n") }

func joinReads(t *testing.T, s string) []byte {
	t.Helper()
	marks := regexp.MustCompile(`\[\+[0-9.]+ ms, ([0-9]+) B\] `).FindAllStringSubmatchIndex(s, -1)
	if len(marks) == 0 {
		return []byte(strings.TrimSuffix(onWire(s), "\n"))
	}
	var all []byte
	for i, m := range marks {
		end := len(s)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		n, err := strconv.Atoi(s[m[2]:m[3]])
		part := onWire(s[m[1]:end])
		if err != nil || n > len(part) {
			t.Fatalf("read %d: %d of %d bytes: %v", i, n, len(part), err)
		}
		all = append(all, part[:n]...)
	}
	return all
}

// answer is a response taken apart: its body as JSON documents, grouped as they came in HTTP chunks.
type answer struct {
	status string
	header http.Header
	chunks [][]string
}

func parseAnswer(t *testing.T, wire []byte) answer {
	t.Helper()
	head, body, ok := bytes.Cut(wire, []byte("\r\n\r\n"))
	if !ok {
		t.Fatalf("no end of headers in %q", wire)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(wire)), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.Status, header: resp.Header}
	for _, volatile := range []string{"Content-Length", "Process-Start-Time-Unix"} {
		if a.header.Get(volatile) != "" {
			a.header.Set(volatile, "#")
		}
	}
	if !bytes.Contains(bytes.ToLower(head), []byte("transfer-encoding: chunked")) {
		a.chunks = [][]string{{string(body)}}
		return a
	}
	a.header.Set("Transfer-Encoding", "chunked")
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		n, err := strconv.ParseInt(string(line), 16, 32)
		if !ok || err != nil || int(n)+2 > len(rest) {
			t.Fatalf("bad chunk %q: %v", line, err)
		}
		if n == 0 {
			return a
		}
		a.chunks = append(a.chunks, splitEvents(string(rest[:n])))
		body = rest[n+2:]
	}
}

func splitEvents(s string) []string {
	var all []string
	for e := range strings.SplitSeq(strings.TrimSuffix(s, "\n\n"), "\n\n") {
		all = append(all, strings.TrimPrefix(e, "data: "))
	}
	return all
}

// skeleton is a JSON document with its keys in order, words of the protocol kept, all other values reduced to their type.
func skeleton(t *testing.T, doc string) string {
	t.Helper()
	if !strings.HasPrefix(doc, "{") && !strings.HasPrefix(doc, "[{") {
		return doc // [DONE], a ping
	}
	var b strings.Builder
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	outline(t, d, "", &b)
	return b.String()
}

func outline(t *testing.T, d *json.Decoder, key string, b *strings.Builder) {
	t.Helper()
	token, err := d.Token()
	if err != nil {
		t.Fatalf("outline: %v", err)
	}
	switch v := token.(type) {
	case json.Delim:
		fmt.Fprint(b, v)
		for i := 0; d.More(); i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			k := key
			if v == '{' {
				name, err := d.Token()
				if err != nil {
					t.Fatal(err)
				}
				k = fmt.Sprint(name)
				b.WriteString(k + ":")
			}
			outline(t, d, k, b)
		}
		end, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(b, end)
	case string:
		b.WriteString(word(key, v))
	case json.Number:
		b.WriteString(figure(key, v))
	default:
		fmt.Fprint(b, v)
	}
}

func word(key, v string) string {
	switch key {
	case "object", "role", "finish_reason", "type", "owned_by", "system_fingerprint", "status", "message":
		return strconv.Quote(v)
	}
	return "$"
}

// figure keeps the figures a request decides on, and tells whole numbers from fractions.
func figure(key string, v json.Number) string {
	switch key {
	case "index", "code", "completion_tokens", "predicted_n", "id":
		return v.String()
	}
	if strings.Contains(v.String(), ".") {
		return "#.#"
	}
	return "#"
}

func (a answer) skeletons(t *testing.T) [][]string {
	t.Helper()
	all := make([][]string, len(a.chunks))
	for i, chunk := range a.chunks {
		for _, doc := range chunk {
			all[i] = append(all[i], skeleton(t, doc))
		}
	}
	return all
}

// replay sends the transcript's request to a phone over a raw connection and returns the bytes of the answer.
func replay(t *testing.T, l *MemListener, tr transcript) []byte {
	t.Helper()
	conn, err := l.DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequestWithContext(t.Context(), tr.method, "http://phone"+tr.path, bytes.NewReader(tr.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = tr.header
	var wire bytes.Buffer
	read := make(chan error, 1)
	go func() { // a pipe takes a write only while it is read
		_, err := io.Copy(&wire, conn)
		read <- err
	}()
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	return wire.Bytes()
}
