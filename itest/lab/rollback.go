//go:build unix

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What a server keeps is in these files, below its directory.
const (
	snapshotFile = "dump.rdb"
	appendFolder = "appendonlydir"
)

// Save copies what the server has stored so far, for RollBack.
func (n *Node) Save() error {
	aside := n.aside()
	if err := errors.Join(os.RemoveAll(aside), os.MkdirAll(aside, 0o755)); err != nil {
		return err
	}
	// A server with an append-only file starts on that alone. It may be cut off in the middle of a
	// command, as after a power failure.
	files := filepath.Join(n.dir, appendFolder)
	if n.Persistence != Memory {
		return os.CopyFS(filepath.Join(aside, appendFolder), os.DirFS(files))
	}
	if reply, err := n.Do("SAVE"); err != nil || reply != "OK" {
		return fmt.Errorf("%s: SAVE: %v, %w", n.Name, reply, err)
	}
	return os.Rename(filepath.Join(n.dir, snapshotFile), filepath.Join(aside, snapshotFile))
}

// RollBack starts the server, which has been killed, on what Save copied.
func (n *Node) RollBack() error {
	files, kept := filepath.Join(n.dir, appendFolder), filepath.Join(n.aside(), appendFolder)
	if n.Persistence != Memory {
		if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(kept))); err != nil {
			return err
		}
		return n.start()
	}
	file := filepath.Join(n.dir, snapshotFile)
	if err := os.Rename(filepath.Join(n.aside(), snapshotFile), file); err != nil {
		return err
	}
	if err := n.start(); err != nil {
		return err
	}
	// The next start is to be without data again.
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (n *Node) aside() string { return filepath.Join(n.dir, "aside") }

// rewritten waits until the server is not rewriting its append-only file.
func (n *Node) rewritten() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		reply, err := n.Do("INFO", "persistence")
		text, _ := reply.(string)
		if err == nil && strings.Contains(text, "aof_rewrite_in_progress:0") &&
			strings.Contains(text, "aof_rewrite_scheduled:0") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s writes its file for too long: %w", n.Name, err)
		}
	}
}
