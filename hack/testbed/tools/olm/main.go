// Checks a bundle and a catalog with the code of OLM: olm BUNDLE CATALOG.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
)

func main() {
	failed := false
	report := func(kind string, found error) {
		fmt.Println(kind, found)
		failed = failed || kind == "error:"
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		report("error:", err)
	} else {
		// what `operator-sdk bundle validate --select-optional name=operatorhub` adds, and the rules of good practice
		validators := validation.DefaultBundleValidators.WithValidators(
			validation.OperatorHubV2Validator,
			validation.StandardCapabilitiesValidator,
			validation.StandardCategoriesValidator,
			validation.ObjectValidator,
			validation.GoodPracticesValidator,
		)
		for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
			for _, each := range result.Warnings {
				report("warning:", each)
			}
			for _, each := range result.Errors {
				report("error:", each)
			}
		}
	}
	catalog, err := declcfg.LoadFS(context.Background(), os.DirFS(os.Args[2]))
	if err == nil {
		_, err = declcfg.ConvertToModel(*catalog)
	}
	if err != nil {
		report("error:", err)
	}
	if failed {
		os.Exit(1)
	}
}
