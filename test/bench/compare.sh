#!/usr/bin/env bash
# Compares, in one run and on one machine: an instant upstream called directly,
# through nginx (least_conn), and through the gateway with keys, limits, queue
# and leases on a real Redis.
#
#   make bench                          # table on stdout, JSON lines in test/bench/results
#   ROUNDS=5 SECONDS_EACH=10 make bench
#
# Targets take turns in every round and the median of the rounds counts, so a
# slow moment of the machine hits them all. Needs redis-server, nginx and wrk.
# Everything it starts is its own and ends with it.
set -euo pipefail

rounds=${ROUNDS:-3}
seconds=${SECONDS_EACH:-6}
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$PATH:/usr/sbin
for tool in redis-server nginx wrk go; do
  command -v "$tool" >/dev/null || { echo "compare.sh: $tool is not installed" >&2; exit 1; }
done

tmp=$(mktemp -d)
pids=()
stop() {
  if ((${#pids[@]})); then
    kill "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" 2>/dev/null || true
  fi
  rm -rf "$tmp"
}
trap stop EXIT

# start NAME COMMAND... runs it in the background, output in NAME.out and NAME.err.
start() {
  local name=$1
  shift
  "$@" >"$tmp/$name.out" 2>"$tmp/$name.err" &
  pids+=($!)
}

# until_ok WHAT COMMAND... polls for up to 10 s.
until_ok() {
  local what=$1
  shift
  for _ in $(seq 100); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  echo "compare.sh: $what does not answer" >&2
  tail -n 20 "$tmp"/*.err >&2
  exit 1
}

bin=$tmp/phonebank
(cd "$root" && go build -o "$bin" ./cmd/phonebank)

start redis redis-server --port 0 --unixsocket "$tmp/redis.sock" --save "" --appendonly no --maxmemory-policy noeviction
until_ok redis test -S "$tmp/redis.sock"

for i in 1 2; do
  start "upstream$i" "$bin" bench upstream --slots 64
  until_ok "upstream $i" grep -q http "$tmp/upstream$i.out"
done
upstream1=$(<"$tmp/upstream1.out")
upstream2=$(<"$tmp/upstream2.out")

# nginx cannot tell which port it got, so it tries some that are likely free.
nginx_config() {
  cat >"$tmp/nginx.conf" <<CONF
daemon off;
worker_processes auto;
pid $tmp/nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path $tmp/body;
  proxy_temp_path $tmp/proxy;
  fastcgi_temp_path $tmp/fastcgi;
  uwsgi_temp_path $tmp/uwsgi;
  scgi_temp_path $tmp/scgi;
  keepalive_requests 1000000000;
  upstream phones {
    least_conn;
    server ${upstream1#http://};
    server ${upstream2#http://};
    keepalive 128;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:$1;
    location / {
      proxy_pass http://phones;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off; # as in front of anything that streams
    }
  }
}
CONF
}
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
nginx_port=
for _ in $(seq 20); do
  port=$((20000 + RANDOM % 10000))
  answers "$port" && continue
  nginx_config "$port"
  start nginx nginx -p "$tmp" -e stderr -c "$tmp/nginx.conf"
  until_ok nginx answers "$port"
  nginx_port=$port
  break
done
[[ -n $nginx_port ]] || { echo "compare.sh: no free port for nginx" >&2; exit 1; }

key=pb-bench-key-000000000000000001
gateway() { # ENGINE
  local engine=$1
  cat >"$tmp/$engine.yaml" <<CONF
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
redis: {url: "unix://$tmp/redis.sock", namespace: "bench-$engine"}
auth:
  keys:
    - {id: bench, key: $key, limits: {requests_per_minute: 100000000, tokens_per_minute: 1000000000, concurrent: 2000}}
models:
  - {id: bench, context: 32768, max_tokens: 256}
replicas:
  - {id: up-1, url: "$upstream1", model: bench, engine: $engine, slots: 64, prior: {prefill_tps: 1000, decode_tps: 1000}}
  - {id: up-2, url: "$upstream2", model: bench, engine: $engine, slots: 64, prior: {prefill_tps: 1000, decode_tps: 1000}}
log: {format: json, level: info}
CONF
  start "$engine" "$bin" serve -c "$tmp/$engine.yaml"
  until_ok "gateway ($engine)" grep -q '"msg":"serving"' "$tmp/$engine.err"
}
# listens ENGINE prints the gateway's base URL.
listens() { grep -m1 '"msg":"serving"' "$tmp/$1.err" | grep -o '"listen":"[^"]*"' | sed 's/.*:"/http:\/\//; s/"$//'; }
gateway openai
gateway llama.cpp
openai_url=$(listens openai)
llama_url=$(listens llama.cpp)

# Bodies of 200 bytes.
body() { # STREAM
  local head="{\"model\":\"bench\",\"stream\":$1,\"max_tokens\":16,\"messages\":[{\"role\":\"user\",\"content\":\"" tail='"}]}'
  printf '%s%*s%s' "$head" $((200 - ${#head} - ${#tail})) '' "$tail" | sed 's/  / x/g'
}
cat >"$tmp/load.lua" <<'LUA'
wrk.method = "POST"
wrk.body = os.getenv("BODY")
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer " .. os.getenv("KEY")
function done(summary, latency)
  local e = summary.errors
  io.stderr:write(string.format(
    '{"target":"%s","form":"%s","connections":%s,"rps":%.1f,"p50_ms":%.3f,"p99_ms":%.3f,"errors":%d}\n',
    os.getenv("TARGET"), os.getenv("FORM"), os.getenv("CONNECTIONS"),
    summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    e.connect + e.read + e.write + e.status + e.timeout))
end
LUA
load() { # TARGET URL FORM CONNECTIONS SECONDS
  local stream=false
  if [[ $3 == stream ]]; then stream=true; fi
  TARGET=$1 FORM=$3 CONNECTIONS=$4 KEY=$key BODY=$(body $stream) \
    wrk -t1 -c"$4" -d"$5"s --timeout 10s -s "$tmp/load.lua" "$2/v1/chat/completions" 2>&1 >/dev/null
}

targets=("direct $upstream1" "nginx http://127.0.0.1:$nginx_port" "gateway(openai) $openai_url" "gateway(llama.cpp) $llama_url")
# A gateway offers a model when its probes have seen it.
for entry in "${targets[@]}"; do
  read -r name url <<<"$entry"
  until_ok "$name" "$bin" bench --url "$url" --key "$key" --model bench --requests 1
  load "$name" "$url" json 32 1 >/dev/null # warm connections, learned speeds
done

mkdir -p "$root/test/bench/results"
stamp=$(date -u +%Y-%m-%dT%H%M%SZ)
results=$root/test/bench/results/$stamp.jsonl
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
printf '{"date":"%s","commit":"%s","cpu":"%s","cores":%s,"rounds":%s,"seconds":%s,"body_bytes":200,"events":8,"load":"wrk -t1"}\n' \
  "$stamp" "$commit" "$cpu" "$(nproc)" "$rounds" "$seconds" >"$results"
for ((round = 1; round <= rounds; round++)); do
  for form in json stream; do
    for connections in 32 1; do
      for entry in "${targets[@]}"; do
        read -r name url <<<"$entry"
        load "$name" "$url" "$form" "$connections" "$seconds" >>"$results"
      done
    done
  done
  echo "round $round of $rounds done" >&2
done

# The table: medians over the rounds, ratios to nginx, added time to direct.
awk '
function field(name,   m) {
  match($0, "\"" name "\":\"?[^,\"}]*")
  m = substr($0, RSTART, RLENGTH)
  sub(/^"[^"]*":"?/, "", m)
  return m
}
function median(list,   v, n, i, j, t) {
  n = split(list, v, " ")
  for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j-1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
  return n % 2 ? v[(n+1)/2] : (v[n/2] + v[n/2+1]) / 2
}
NR > 1 {
  k = field("form") SUBSEP field("connections") SUBSEP field("target")
  if (!(k in rps)) order[++rows] = k
  rps[k] = rps[k] " " field("rps"); p50[k] = p50[k] " " field("p50_ms"); p99[k] = p99[k] " " field("p99_ms"); bad[k] += field("errors")
}
END {
  print "| load | target | req/s | of nginx | p50 ms | p99 ms | added p50 ms | errors |"
  print "|---|---|--:|--:|--:|--:|--:|--:|"
  for (i = 1; i <= rows; i++) {
    k = order[i]; split(k, part, SUBSEP)
    nginx = part[1] SUBSEP part[2] SUBSEP "nginx"; direct = part[1] SUBSEP part[2] SUBSEP "direct"
    printf "| %s, -c%s | %s | %.0f | %.2f | %.2f | %.2f | %+.2f | %d |\n", part[1], part[2], part[3],
      median(rps[k]), median(rps[k]) / median(rps[nginx]), median(p50[k]), median(p99[k]), median(p50[k]) - median(p50[direct]), bad[k]
  }
}' "$results"
echo "results: ${results#"$root"/}" >&2
