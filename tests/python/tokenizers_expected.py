"""Small tokenizers of every kind, text, and the tokens that Python's `tokenizers` makes of it.

Argument: a folder. Writes `KIND.json` for each kind, `text.jsonl`, and `KIND.tokens`, a JSON list of tokens for each line.
"""

import json
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = 500
# That of Llama 3: it looks ahead.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
SPECIAL = ["<unk>", "<s>", "</s>"]


def texts():
    numbers = random.Random(7)
    words = ("the plan IS program; it'll don't I'M 12345 3.14 naïve Straße Ελληνικά Привет 漢字かな 한국어 עברית العربية "
             "हिन्दी ไทย 👩‍👩‍👧 🇩🇪 e\u0301 ﬁ ½ \u200b \u00a0 <s> </s> fn(x) { return x*x; } --flag ==> \\n http://a.b/c?d=e").split(" ")
    spaces = [" ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "   \n ", ""]
    for _ in range(400):
        yield "".join(numbers.choice(words) + numbers.choice(spaces) for _ in range(numbers.randrange(1, 60)))
    for _ in range(100):
        # Whatever there is, but for halves of pairs.
        code = lambda: numbers.choice([numbers.randrange(0xd800), numbers.randrange(0xe000, 0x110000)])
        yield "".join(chr(code()) for _ in range(numbers.randrange(1, 30)))


def tokenizers():
    llama3 = Tokenizer(models.BPE(ignore_merges=True))
    llama3.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama3.decoder = decoders.ByteLevel()
    yield "bytes", llama3, trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    gpt2 = Tokenizer(models.BPE())
    gpt2.normalizer = normalizers.NFC()
    gpt2.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    yield "digits", gpt2, trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    llama2 = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    yield "fallback", llama2, trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)], show_progress=False)
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    yield "unigram", unigram, trainers.UnigramTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    bert = Tokenizer(models.WordPiece(unk_token="<unk>"))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    yield "pieces", bert, trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=SPECIAL, show_progress=False)


folder = sys.argv[1]
lines = list(texts())
with open(f"{folder}/text.jsonl", "w", encoding="utf-8") as file:
    for number, line in enumerate(lines):
        # As others write JSON: with and without escapes.
        file.write(json.dumps({"id": number, "text": line}, ensure_ascii=number % 2 == 0) + "\n")
kinds = []
for kind, tokenizer, trainer in tokenizers():
    tokenizer.train_from_iterator(lines[:400], trainer)
    tokenizer.save(f"{folder}/{kind}.json")
    tokens = [encoded.ids for encoded in tokenizer.encode_batch(lines, add_special_tokens=kind == "pieces")]
    with open(f"{folder}/{kind}.tokens", "w") as file:
        json.dump(tokens, file)
    kinds.append(kind)
print(json.dumps(kinds))
