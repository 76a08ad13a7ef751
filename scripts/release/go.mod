module github.com/holdfast-go/holdfast/scripts/release

go 1.25.0

require golang.org/x/mod v0.38.0

require (
	golang.org/x/exp v0.0.0-20260209203927-2842357ff358
	golang.org/x/tools v0.47.0 // indirect
)
