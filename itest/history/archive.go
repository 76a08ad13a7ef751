package history

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
)

// packed is the end of the name of an archive.
const packed = ".gz"

// Archive packs the logs of one run into one file for [Read]. The name of the file has to end in
// .gz. It leaves out a last line that was cut off. If it fails, the file is as it was before.
func Archive(path string, logs ...string) (err error) {
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	pack := gzip.NewWriter(file)
	defer func() {
		if err = errors.Join(err, pack.Close(), file.Close()); err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	for _, log := range logs {
		if err := copyLines(pack, log); err != nil {
			return err
		}
	}
	return nil
}

func copyLines(to io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
	}
}

// open opens a log or an archive.
func open(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if err != nil || !strings.HasSuffix(path, packed) {
		return file, err
	}
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{unpacked, file}, nil
}
