#!/usr/bin/env bash
# configs/staging.py: a model that is whole passes, and what is wrong with one is told, with the command that helps.
#   staging.sh MODEL_DIR
set -euo pipefail
model=$1
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The model in $work/gpt2, as it has been changed, is refused with this text.
refused() { # TEXT [OPTION...]
  local text=$1 code=0
  shift
  python3 configs/staging.py "$@" "$work/staged.cfg" >"$work/said" || code=$?
  [ $code -eq 1 ] && grep -q "$text" "$work/said" || fail "\"$text\" was expected: $(cat "$work/said")"
}

anew() {
  rm -rf "$work/gpt2"
  cp -r "$model" "$work/gpt2"
}

printf 'model: {\n  path = "%s";\n};\ncorpora: {\n  text: {\n    path = "README.md"; # here\n  };\n};\n' "$work/gpt2" >"$work/staged.cfg"
refused "the directory is missing"
anew
mv "$work/gpt2" "$work/other"
sed "s:$work/gpt2:$work/other:" "$work/staged.cfg" >"$work/other.cfg"
python3 configs/staging.py --write "$work/other.cfg" >/dev/null || fail "a whole model is refused"
python3 configs/staging.py --sha256 "$work/other.cfg" >/dev/null || fail "its sums differ"
printf x | dd of="$work/other/model.safetensors" bs=1 seek=100000 conv=notrunc status=none
! python3 configs/staging.py --sha256 "$work/other.cfg" >"$work/said" || fail "a changed byte is accepted"
grep -q "SHA-256" "$work/said" || fail "a changed byte: $(cat "$work/said")"

anew # its name is that of a published model, which it is not
refused "that of the published gpt2 is"
grep -q "^curl .*/gpt2/config.json https://huggingface.co/openai-community/gpt2/" "$work/said" || fail "no command: $(cat "$work/said")"
truncate -s -1 "$work/gpt2/model.safetensors"
refused "cut short"
printf 'version https://git-lfs.github.com/spec/v1\n' >"$work/gpt2/model.safetensors"
refused "Git LFS pointer"
anew
rm "$work/gpt2/tokenizer.json"
refused "no tokenizer.json"
anew
sed -i 's/"n_layer": *\([0-9]*\)/"n_layer": 99/' "$work/gpt2/config.json"
refused "tensors are missing"
: >"$work/empty"
sed -i "s:README.md:$work/empty:" "$work/staged.cfg"
refused "empty"
