// Reads a dashboard as strictly as Grafana's published schema has it: fields that are missing, unknown, or of
// another type are told, and end it with 1.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		var read dashboard.Dashboard
		if err = read.UnmarshalJSONStrict(text); err == nil {
			err = read.Validate()
		}
	}
	// The library's error may be a list of none.
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
