module github.com/holdfast-go/holdfast/cmd/holdfast

go 1.25.0
