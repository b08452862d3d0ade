// The extender that an engineer would write in an afternoon: one process, node totals in a map
// behind a mutex. It watches nothing, logs nothing and forgets everything when it ends.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	extender "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to answer on")
	url := flag.String("api", "", "URL of the API server; its bearer token is $API_TOKEN")
	flag.Parse()
	api := newAPIServer(*url, os.Getenv("API_TOKEN"))
	totals := newTotals()
	if err := api.load(totals); err != nil {
		fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fatal(err)
	}
	fmt.Printf("http://%s/extender\n", listener.Addr())
	fatal(http.Serve(listener, routes(totals, api)))
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func routes(totals *totals, api *apiServer) http.Handler {
	bind := func(args *extender.ExtenderBindingArgs) *extender.ExtenderBindingResult {
		if err := totals.bind(args, api.bind); err != nil {
			return &extender.ExtenderBindingResult{Error: err.Error()}
		}
		return &extender.ExtenderBindingResult{}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /extender/filter", verb(totals.filter))
	mux.HandleFunc("POST /extender/prioritize", verb(totals.prioritize))
	mux.HandleFunc("POST /extender/bind", verb(bind))
	return mux
}

func verb[Args, Result any](answer func(*Args) Result) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		var args Args
		if err := json.NewDecoder(request.Body).Decode(&args); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(answer(&args))
	}
}
