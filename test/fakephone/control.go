package fakephone

import (
	"encoding/json"
	"io"
	"net/http"
)

// maxControlBody bounds a fault sent to the control handler.
const maxControlBody = 1 << 20

// ControlHandler serves the phone's switches to test programs. It asks for no key: listen on a loopback address only.
//
//	POST /fault    {"kind":"reset-stream","after":3}   as [Fault]; 204, or 400 with the reason
//	DELETE /fault                                      204
//	GET /stats                                         [Stats] as JSON, without header and body
//	POST /restart                                      204 when the port is open again
func (p *Phone) ControlHandler() http.Handler {
	mux := http.NewServeMux()
	done := func(w http.ResponseWriter, err error, status int) {
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		fault, err := readFault(http.MaxBytesReader(w, r.Body, maxControlBody))
		if err == nil {
			err = p.SetFault(fault)
		}
		done(w, err, http.StatusBadRequest)
	})
	mux.HandleFunc("DELETE /fault", func(w http.ResponseWriter, _ *http.Request) {
		done(w, p.Clear(), http.StatusInternalServerError)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encode(p.Stats())) // a client that has left does not want it
	})
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, _ *http.Request) {
		done(w, p.Restart(), http.StatusInternalServerError)
	})
	return mux
}

func readFault(r io.Reader) (Fault, error) {
	var f Fault
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	return f, err
}
