// Package holdfast.
package holdfast
