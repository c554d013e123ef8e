package openai

// readPrompt takes the members that make up the prompt. Only the containers
// are checked: what a message may look like is the engine's to judge.
func (h *Head) readPrompt(m *member, raw []byte) error {
	switch string(m.key) {
	case "messages":
		if h.Endpoint != ChatCompletions {
			return nil
		}
		if m.kind != kindArray {
			return InvalidRequest("messages", "Invalid type for 'messages': send an array of message objects.")
		}
		h.PromptBytes += len(raw) - h.findMedia(raw)
	case "prompt":
		if h.Endpoint != Completions {
			return nil
		}
		if m.kind != kindArray && m.kind != kindString {
			return InvalidRequest("prompt", "Invalid type for 'prompt': send a string, an array of strings, or an array of token ids.")
		}
		h.PromptBytes += len(raw)
		if m.kind == kindArray {
			h.Prompts = countPrompts(raw)
		}
	case "tools":
		if m.kind == kindNull {
			return nil
		}
		h.PromptBytes += len(raw)
		h.Features.Tools = h.Features.Tools || !vacant(raw)
	}
	return nil
}

// findMedia notes image and audio parts and returns how many bytes they take.
// The text has been validated, so the scanner cannot fail.
func (h *Head) findMedia(messages []byte) (size int) {
	s := scanner{data: messages, lax: true}
	part := func() bool {
		if s.kind() != kindObject {
			return s.skip()
		}
		start := s.pos
		image, audio := false, false
		ok := s.object(func(key []byte, _ int) bool {
			value, ok := s.value()
			if ok && string(key) == "type" {
				image = isString(value, "image_url")
				audio = isString(value, "input_audio")
			}
			return ok
		})
		if image || audio {
			size += s.pos - start
		}
		h.HasImage = h.HasImage || image
		h.HasAudio = h.HasAudio || audio
		return ok
	}
	s.array(func() bool {
		if s.kind() != kindObject {
			return s.skip()
		}
		return s.object(func(key []byte, _ int) bool {
			if string(key) == "content" && s.kind() == kindArray {
				return s.array(part)
			}
			return s.skip()
		})
	})
	return size
}

// countPrompts follows llama-server: an array of strings or of arrays is that
// many prompts; with a number in it, it is one prompt of mixed pieces.
func countPrompts(prompt []byte) int {
	s := scanner{data: prompt, lax: true}
	n, tokens := 0, false
	s.array(func() bool {
		n++
		tokens = tokens || s.kind() == kindNumber
		return s.skip()
	})
	if tokens || n == 0 {
		return 1
	}
	return n
}

// isString reports whether raw is the JSON string want.
func isString(raw []byte, want string) bool {
	return raw[0] == '"' && string(unquote(raw)) == want
}

// isType reports whether raw is an object whose type member is want.
func isType(raw []byte, want string) bool {
	if raw[0] != '{' {
		return false
	}
	o, err := parseLax(raw, nil)
	if err != nil {
		return false
	}
	m := o.find("type")
	return m != nil && isString(o.raw(m), want)
}
