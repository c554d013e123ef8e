package account

// Keys of the canonical log line. Durations are in milliseconds, tokens are counts.
const (
	Message = "request" // the line's message

	KeyRequestID       = "request_id"
	KeyKeyID           = "key_id"
	KeyModel           = "model"
	KeyRoute           = "route"
	KeyClass           = "class"
	KeyStream          = "stream"
	KeyStatus          = "status"
	KeyOutcome         = "outcome"
	KeyErrorCode       = "error_code"
	KeyError           = "error"
	KeyTokensIn        = "tokens_in"
	KeyTokensCached    = "tokens_cached"
	KeyTokensOut       = "tokens_out"
	KeyTokensEstimated = "tokens_in_estimated"
	KeyAttempts        = "attempts"
	KeyReplica         = "replica"
	KeyFailedAttempts  = "failed_attempts" // kinds, comma separated
	KeyQueueWaitMS     = "queue_wait_ms"
	KeyFirstTokenMS    = "ttft_ms"
	KeyTotalMS         = "total_ms"
	KeyTokensPerSecond = "tokens_out_per_second" // after the first token
)
