package openai

// Model is one entry of GET /v1/models, and the answer of GET /v1/models/{id}.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`  // always "model"
	Created int64  `json:"created"` // Unix seconds
	OwnedBy string `json:"owned_by"`
}

// ModelList is the answer of GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // always "list"
	Data   []Model `json:"data"`
}

// NewModel describes a model that callers may ask for since created (Unix seconds).
func NewModel(id string, created int64, ownedBy string) Model {
	return Model{ID: id, Object: "model", Created: created, OwnedBy: ownedBy}
}

// NewModelList wraps models in the order given. No models is an empty list on
// the wire, not null.
func NewModelList(models []Model) ModelList {
	if models == nil {
		models = []Model{}
	}
	return ModelList{Object: "list", Data: models}
}
