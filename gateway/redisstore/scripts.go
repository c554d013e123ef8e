package redisstore

import (
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one file of lua/, with the shared parts it needs in front.
type script struct {
	name string
	run  *redis.Script
}

// scripts are all decisions, one field each.
type scripts struct {
	admit, assign, take, finish       script
	heads, positions, snapshot, views script
	beat, restore, tick, resign       script
	join, leave, due, setHealth       script
}

// The shared parts. Redis compiles a script once, but creates the functions of its parts on every run: each script includes only what it uses.
const (
	partPrelude = "prelude"
	partBuckets = "buckets"
	partEnding  = "ending"
	partHeads   = "heads_of"
)

func loadScripts() (*scripts, error) {
	var s scripts
	for _, file := range []struct {
		to    *script
		name  string
		parts []string
	}{
		{&s.admit, "admit", []string{partBuckets, partPrelude}},
		{&s.assign, "assign", []string{partPrelude}},
		{&s.take, "take", []string{partPrelude}},
		{&s.finish, "finish", []string{partBuckets, partPrelude, partEnding, partHeads}},
		{&s.heads, "heads", []string{partHeads}},
		{&s.positions, "positions", nil},
		{&s.snapshot, "snapshot", nil},
		{&s.views, "views", nil},
		{&s.beat, "beat", nil},
		{&s.restore, "restore", []string{partPrelude}},
		{&s.tick, "tick", []string{partBuckets, partPrelude, partEnding}},
		{&s.resign, "resign", nil},
		{&s.join, "join", []string{partPrelude}},
		{&s.leave, "leave", nil},
		{&s.due, "due", nil},
		{&s.setHealth, "set_health", []string{partPrelude}},
	} {
		text, err := sourceOf(append(file.parts, file.name))
		if err != nil {
			return nil, fmt.Errorf("script %s: %w", file.name, err)
		}
		*file.to = script{name: file.name, run: redis.NewScript(text)}
	}
	return &s, nil
}

func sourceOf(files []string) (string, error) {
	var text strings.Builder
	for _, name := range files {
		b, err := sources.ReadFile("lua/" + name + ".lua")
		if err != nil {
			return "", err
		}
		text.Write(b)
		text.WriteByte('\n')
	}
	return text.String(), nil
}
