package cli

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// completeAddresses has shells complete a flag that takes an address: to the schemes of the given
// forms, and after file:// to directories.
func completeAddresses(cmd *cobra.Command, flag string, forms func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag,
		func(_ *cobra.Command, _ []string,
			word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var found []cobra.Completion
			var files bool
			for _, form := range forms() {
				scheme, _, _ := strings.Cut(form, "://")
				files = files || scheme == "file"
				if begin := scheme + "://"; strings.HasPrefix(begin, word) {
					found = append(found, cobra.CompletionWithDesc(begin, form))
				}
			}
			if path, ok := strings.CutPrefix(word, "file://"); ok && files {
				found = directories(path)
			}
			return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		})
	if err != nil {
		panic(err) // no such flag: a mistake in the program
	}
}

// directories returns the addresses of the directories whose escaped path begins with path.
func directories(path string) (found []cobra.Completion) {
	if path == "" {
		path = "/"
	}
	parent, begin := filepath.Split(path)
	// A path that is badly escaped or cannot be read has no completions.
	dir, _ := url.PathUnescape(parent)
	prefix, _ := url.PathUnescape(begin)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			name := strings.TrimPrefix(backendurl.Dir("/"+e.Name()).String(), "file:///")
			found = append(found, "file://"+parent+name)
		}
	}
	return found
}
