package fakephone

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnswerFaults(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	want := Answer(chat, []byte(say))
	one := func(k Kind, body string) (*http.Response, []byte, error) {
		setFault(t, p, Fault{Kind: k})
		resp, err := c.post(t.Context(), chat, body)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp, b, err
	}
	parse := func(b []byte) []event {
		events, err := readStream(time.Now(), bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		return events
	}

	_, b, err := one(NoDone, say)
	if e := parse(b); err != nil || texts(e) != want || finishReason(e) != "stop" || done(e) {
		t.Errorf("no-done: %v, %s", err, b)
	}
	_, b, err = one(DoneNoFinish, say)
	if e := parse(b); err != nil || texts(e) != want || finishReason(e) != "" || !done(e) {
		t.Errorf("done-no-finish: %v, %s", err, b)
	}
	_, b, err = one(EmptyAnswer, say)
	if e := parse(b); err != nil || texts(e) != "" || finishReason(e) != "stop" || !done(e) {
		t.Errorf("empty-answer: %v, %s", err, b)
	}
	_, b, err = one(WrongAnswer, say)
	if e := parse(b); err != nil || strings.Contains(texts(e), PromptHash(chat, []byte(say))) || !strings.HasPrefix(texts(e), "[") || !done(e) {
		t.Errorf("wrong-answer: %v, %s", err, b)
	}
	resp, b, err := one(JSONForStream, say)
	var whole chatAnswer
	if err != nil || json.Unmarshal(b, &whole) != nil || whole.Choices[0].Message.Content != want || resp.Header.Get("Content-Type") != jsonType8 {
		t.Errorf("json-for-stream: %v, %s", err, b)
	}
	resp, b, err = one(GzipBody, say)
	if z, zerr := gzip.NewReader(bytes.NewReader(b)); zerr != nil || err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("gzip-body: %v, %v", err, zerr)
	} else if plain, _ := io.ReadAll(z); texts(parse(plain)) != want {
		t.Errorf("gzip-body: %s", plain)
	}
	_, b, err = one(TruncateLength, strings.Replace(say, "true", "false", 1))
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(b) == 0 {
		t.Errorf("truncate-length: %v after %d bytes", err, len(b))
	}
	_, b, err = one(ChunkSplit, say)
	if e := parse(b); err != nil || texts(e) != want || !done(e) {
		t.Errorf("chunk-split: %v, %s", err, b)
	}
	healthy(t, p, c)
}

func TestChunkSplitIsOneByteAChunk(t *testing.T) {
	t.Parallel()
	p, _ := overTLS(t, fast())
	setFault(t, p, Fault{Kind: ChunkSplit})
	conn := rawConn(t, p, "POST "+chat+" HTTP/1.1\r\nHost: x\r\nContent-Length: "+itoa(len(say))+"\r\n\r\n"+say)
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\r\n1\r\n")); n < 1000 {
		t.Errorf("%d chunks of one byte, want all", n)
	}
}
