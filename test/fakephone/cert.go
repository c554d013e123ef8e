package fakephone

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// identity is a phone's certificate; it survives restarts.
type identity struct {
	cert            tls.Certificate
	certPEM, keyPEM []byte
	pin             string
}

func newIdentity(cfg Config) (identity, error) {
	certPEM, keyPEM := cfg.CertPEM, cfg.KeyPEM
	if len(certPEM) == 0 {
		var err error
		if certPEM, keyPEM, err = selfSigned(cfg.ID, cfg.Hosts); err != nil {
			return identity{}, fmt.Errorf("make certificate: %w", err)
		}
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return identity{}, fmt.Errorf("read certificate: %w", err)
	}
	sum := sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo)
	return identity{cert, certPEM, keyPEM, "sha256/" + base64.StdEncoding.EncodeToString(sum[:])}, nil
}

// selfSigned makes a P-256 certificate that can also serve as its own root. It is valid from the year 2000, so that it can be used
// under the clock of a testing/synctest bubble as well.
func selfSigned(id string, hosts []string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: id},
		NotBefore:             time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	return certPEM, keyPEM, nil
}

// serverConfig is HTTP/1.1 only, as llama-server behind a tunnel is.
func (id identity) serverConfig() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{id.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}
