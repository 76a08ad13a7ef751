//go:build unix

package lab

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
)

// requests reads what a client sends: all that has arrived, or one request of it if single returns
// true. It never ends within a request, unless the connection does.
func requests(from io.Reader) func(single func() bool) ([]byte, error) {
	r := bufio.NewReaderSize(from, 1<<16)
	return func(single func() bool) (part []byte, err error) {
		for {
			if part, err = request(r, part); err != nil || r.Buffered() == 0 || single() {
				return part, err
			}
		}
	}
}

// request appends a request to part: an array of strings, each with its length in front.
func request(r *bufio.Reader, part []byte) ([]byte, error) {
	part, count, err := number(r, part)
	for ; count > 0 && err == nil; count-- {
		var size int
		if part, size, err = number(r, part); err != nil {
			break
		}
		text := make([]byte, size+2) // and the end of the line
		var n int
		n, err = io.ReadFull(r, text)
		part = append(part, text[:n]...)
	}
	return part, err
}

// number appends a line to part, and returns the number in it; 0 if there is none.
func number(r *bufio.Reader, part []byte) ([]byte, int, error) {
	line, err := r.ReadBytes('\n')
	part = append(part, line...)
	if err != nil || len(line) < 2 {
		return part, 0, err
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	return part, max(n, 0), nil
}

// whatever reads all that has arrived.
func whatever(from io.Reader) func(single func() bool) ([]byte, error) {
	buffer := make([]byte, 1<<16)
	return func(func() bool) ([]byte, error) {
		n, err := from.Read(buffer)
		return buffer[:n], err
	}
}
