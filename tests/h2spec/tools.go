//go:build tools

// Package tools names the judge of HTTP/2 that the tests build, with the versions of all that it needs in go.sum.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
