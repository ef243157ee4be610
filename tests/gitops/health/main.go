// Health of Kubernetes objects, as the tools of GitOps compute it: by kstatus (Flux), or by a Lua health check (Argo CD).
//
//	health < objects.json                one JSON line for each object: the status of kstatus, and its message
//	health check.lua < objects.json      the same by a Lua check, in an interpreter with Argo CD's limits
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	input, err := io.ReadAll(os.Stdin)
	exitOn(err)
	var objects []map[string]any
	exitOn(kubejson.Unmarshal(input, &objects)) // integers as int64
	output := json.NewEncoder(os.Stdout)
	for _, object := range objects {
		found := health{}
		if len(os.Args) > 1 {
			found, err = check(os.Args[1], object)
		} else {
			found, err = compute(object)
		}
		exitOn(err)
		exitOn(output.Encode(found))
	}
}

func compute(object map[string]any) (health, error) {
	result, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		return health{}, err
	}
	return health{string(result.Status), result.Message}, nil
}

// check runs a script with the global variable obj. Like Argo CD, it opens no library that reads files or starts programs.
func check(script string, object map[string]any) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase,
		lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return health{}, err
		}
	}
	state.SetGlobal("obj", convert(state, object))
	if err := state.DoFile(script); err != nil {
		return health{}, err
	}
	table, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return health{}, fmt.Errorf("%s returned no table", script)
	}
	return health{lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))}, nil
}

func convert(state *lua.LState, value any) lua.LValue {
	switch typed := value.(type) {
	case bool:
		return lua.LBool(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	case string:
		return lua.LString(typed)
	case []any:
		table := state.CreateTable(len(typed), 0)
		for _, item := range typed {
			table.Append(convert(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(typed))
		for key, item := range typed {
			table.RawSetString(key, convert(state, item))
		}
		return table
	}
	return lua.LNil
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
