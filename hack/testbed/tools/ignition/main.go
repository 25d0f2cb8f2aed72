// Checks an Ignition 3.2 configuration from standard input, as MachineConfigs hold it, with Ignition's own parser and
// validator. It exits with 1 and a report if they find anything.
package main

import (
	"fmt"
	"io"
	"os"

	ignition "github.com/coreos/ignition/v2/config/v3_2"
)

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, report, failed := ignition.Parse(input)
		if failed == nil && report.String() == "" {
			return
		}
		err = fmt.Errorf("%v: %s", failed, report.String())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
