package s3fence

import (
	"errors"
	"net/http"

	"github.com/aws/smithy-go"
)

// outcome is what became of a write.
type outcome int

const (
	unknown   outcome = iota // it may be executed, also later
	written                  // it was executed
	overtaken                // not executed: the object is not what it was
	refused                  // not executed, and the same again would not be either
)

// outcomeOf says what the answer to a write means.
func outcomeOf(err error) outcome {
	switch code := status(err); {
	case err == nil:
		return written
	case code == http.StatusPreconditionFailed, code == http.StatusConflict,
		code == http.StatusNotFound && errorCode(err) == "NoSuchKey":
		return overtaken
	case code >= 300 && code < 500, code == http.StatusNotImplemented, unsent(err):
		return refused
	}
	return unknown
}

// status is that of the answer, or 0 if there is none.
func status(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// errorCode is what the store calls its error, or empty.
func errorCode(err error) string {
	var failure smithy.APIError
	if errors.As(err, &failure) {
		return failure.ErrorCode()
	}
	return ""
}

// unsent reports whether the client made no request of what it was given.
func unsent(err error) bool {
	var invalid *smithy.InvalidParamsError
	var unserialized *smithy.SerializationError
	return errors.As(err, &invalid) || errors.As(err, &unserialized)
}
