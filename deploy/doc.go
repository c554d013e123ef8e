// Package deploy holds what runs Phonebank somewhere: the image, the sample
// proxy, and the documented configuration. It has no code of its own; its tests
// keep these files true to each other and to the binary.
package deploy
