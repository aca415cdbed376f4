// Renders a chart with Go's own text/template and the functions that our chart uses. It is no helm: hooks, lookups,
// dependencies and the rest of its functions are not here.
//
//	render FOLDER < VALUES.json             prints the rendered templates as one YAML stream
//	render FOLDER NOTES.txt < VALUES.json   prints one of them, whatever it is
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"text/template"
)

type input struct {
	Values  map[string]any
	Release map[string]any
	Chart   map[string]any
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func isEmpty(value any) bool {
	switch known := value.(type) {
	case nil:
		return true
	case bool:
		return !known
	case string:
		return known == ""
	case float64:
		return known == 0
	case int:
		return known == 0
	case []any:
		return len(known) == 0
	case map[string]any:
		return len(known) == 0
	}
	return false
}

func indent(count int, text string) string {
	pad := strings.Repeat(" ", count)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func functions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"quote":      func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"nindent":    func(count int, text string) string { return "\n" + indent(count, text) },
		"trunc":      func(count int, text string) string { return text[:min(count, len(text))] },
		"trimSuffix": func(end, text string) string { return strings.TrimSuffix(text, end) },
		"splitList":  func(sep, text string) []string { return strings.Split(text, sep) },
		"default": func(other, value any) any {
			if isEmpty(value) {
				return other
			}
			return value
		},
		"required": func(message string, value any) (any, error) {
			if isEmpty(value) {
				return nil, fmt.Errorf("%s", message)
			}
			return value, nil
		},
		"fail": func(message string) (string, error) { return "", fmt.Errorf("%s", message) },
		"toJson": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		// Go's own words for kinds: string, float64, slice, map, bool, invalid.
		"kindIs": func(kind string, value any) bool { return reflect.ValueOf(value).Kind().String() == kind },
		"ternary": func(yes, no any, test bool) any {
			if test {
				return yes
			}
			return no
		},
		"list":      func(values ...any) []any { return append([]any{}, values...) },
		"hasKey":    func(known map[string]any, name string) bool { _, there := known[name]; return there },
		"replace":   func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
		"hasSuffix": func(end, text string) bool { return strings.HasSuffix(text, end) },
		"toString": func(value any) string { return fmt.Sprint(value) },
		"join": func(sep string, values []any) string {
			texts := make([]string, len(values))
			for place, value := range values {
				texts[place] = fmt.Sprint(value)
			}
			return strings.Join(texts, sep)
		},
		"dict": func(pairs ...any) map[string]any {
			made := map[string]any{}
			for place := 0; place+1 < len(pairs); place += 2 {
				made[fmt.Sprint(pairs[place])] = pairs[place+1]
			}
			return made
		},
		"set": func(made map[string]any, name string, value any) map[string]any {
			made[name] = value
			return made
		},
		"int": func(value any) int {
			switch known := value.(type) {
			case float64:
				return int(known)
			case int:
				return known
			}
			return 0
		},
	}
}

func main() {
	folder := os.Args[1]
	var data input
	fail(json.NewDecoder(os.Stdin).Decode(&data))
	all := template.New("chart")
	all.Funcs(functions(all)).Option("missingkey=zero")
	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	fail(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		fail(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		fail(err)
	}
	if len(os.Args) > 2 {
		fail(all.ExecuteTemplate(os.Stdout, os.Args[2], data))
		return
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		var out bytes.Buffer
		fail(all.ExecuteTemplate(&out, name, data))
		if strings.TrimSpace(out.String()) != "" {
			fmt.Printf("---\n# %s\n%s\n", name, strings.Trim(out.String(), "\n"))
		}
	}
}
