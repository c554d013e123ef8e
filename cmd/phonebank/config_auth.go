package main

import (
	"fmt"
	"os"

	"phonebank/auth"
)

// callers is the section as package auth wants it.
func (a AuthConfig) callers() auth.Config {
	c := auth.Config{Open: a.Open}
	for _, k := range a.Keys {
		c.Keys = append(c.Keys, auth.Key{
			Principal: auth.Principal{
				KeyID:             k.ID,
				Class:             k.Class,
				RequestsPerMinute: k.Limits.RequestsPerMinute,
				TokensPerMinute:   k.Limits.TokensPerMinute,
				Concurrent:        k.Limits.Concurrent,
			},
			Secret: string(k.Key),
		})
	}
	return c
}

// operators is the section as package auth wants it. It reads the public key.
func (a AdminConfig) operators() (auth.AdminConfig, error) {
	c := auth.AdminConfig{Key: string(a.Key)}
	if a.JWT == nil {
		return c, nil
	}
	text, err := os.ReadFile(string(a.JWT.PublicKey))
	if err != nil {
		return auth.AdminConfig{}, fmt.Errorf("public key: %w", err)
	}
	c.JWT = &auth.JWTConfig{
		PublicKeyPEM: text,
		Audience:     a.JWT.Audience,
		Issuer:       a.JWT.Issuer,
		Leeway:       a.JWT.Leeway,
	}
	return c, nil
}
