package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/holdfast-go/holdfast/itest/history"
)

// An archive has what was recorded, without a line that was cut off because its process was killed.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	var logs []string
	for _, client := range []string{"c1.1", "c2.1"} {
		path := filepath.Join(dir, client)
		log, err := history.Create(path, client)
		if err != nil {
			t.Fatal(err)
		}
		log.Add(history.Record{Kind: history.Ask, Op: 1, Key: "k"})
		log.Add(history.Record{Kind: history.Refuse, Op: 1, Err: "held"})
		log.Close()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(`{"kind":"ask","op":2,"ke`); err != nil {
			t.Fatal(err)
		}
		file.Close()
		logs = append(logs, path)
	}
	if n, err := history.Count(history.Ask, logs...); n != 2 || err != nil {
		t.Errorf("%d questions, %v; want 2", n, err)
	}
	want, err := history.Read(logs...)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "all.jsonl.gz")
	if err := history.Archive(archive, logs...); err != nil {
		t.Fatal(err)
	}
	got, err := history.Read(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := history.Archive(archive, filepath.Join(dir, "none"), logs[0]); err == nil {
		t.Error("a log that is not there was archived")
	}
	if kept, err := history.Read(archive); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("an archive that could not be written has left %+v, %v", kept, err)
	}
	if files, _ := filepath.Glob(archive + "?*"); len(files) > 0 {
		t.Errorf("it has also left %q", files)
	}
	if len(got.Acquisitions) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
}
