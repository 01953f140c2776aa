#!/bin/bash
cat <<A <<B <<'C' | tee <<-D
A
$x
B
ÿş$(`