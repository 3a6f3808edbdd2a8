"""Make tiny text models with random weights, in the format of transformers.

    python scripts/studies/make_tiny_models.py bert --out DIR --texts FILE.jsonl --column text
    python scripts/studies/make_tiny_models.py causal --out DIR --texts FILE.jsonl --column question

The vocabulary is built from the texts: WordPiece for the encoder, BPE for the causal model. So
tests and studies need no weights from anywhere. `path` of [model] names DIR.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgefl.data.text_tables import table
from edgefl.errors import UserError, needs

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"  # Qwen2's own
CHAT = "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}\n{% endfor %}"
CHAT += "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"


def tiny_bert(directory: Path, texts: Iterable[str], vocabulary: int = 2000, **sizes: int) -> Path:
    """Write a BERT with random weights and a WordPiece vocabulary of the texts; return its path.

    ``directory`` is new or empty. ``sizes``: as ``_sizes`` has them.
    """
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizer

    directory.mkdir(parents=True, exist_ok=True)
    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(
        list(texts), vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False
    )
    trained.save_model(str(directory))
    shape = _sizes(128, sizes)
    tokenizer = BertTokenizer.from_pretrained(
        str(directory), model_max_length=shape["max_position_embeddings"]
    )
    pad = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    return _write(directory, tokenizer, BertModel, BertConfig(**shape, **pad))


def tiny_causal(
    directory: Path, texts: Iterable[str], vocabulary: int = 1000, **sizes: int
) -> Path:
    """Write a Qwen2 with random weights and a BPE vocabulary of the texts; return its path."""
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    directory.mkdir(parents=True, exist_ok=True)
    shape = _sizes(256, sizes)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_bpe(texts, vocabulary),
        eos_token=END,
        pad_token=END,
        model_max_length=shape["max_position_embeddings"],
    )
    tokenizer.chat_template = CHAT
    config = Qwen2Config(
        **shape,
        vocab_size=len(tokenizer),
        num_key_value_heads=max(1, shape["num_attention_heads"] // 2),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return _write(directory, tokenizer, Qwen2ForCausalLM, config)


def _sizes(most: int, given: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes as a config of transformers names them; ``most``: default positions."""
    hidden = given.get("hidden", 32)
    return {
        "hidden_size": hidden,
        "num_hidden_layers": given.get("layers", 2),
        "num_attention_heads": 2,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": given.get("positions", most),
    }


def _write(directory: Path, tokenizer: Any, kind: Any, config: Any) -> Path:
    """Write the tokenizer and a model with random weights, the same ones each time."""
    import torch
    from transformers import logging

    logging.disable_progress_bar()
    tokenizer.save_pretrained(str(directory))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind(config).save_pretrained(str(directory))
    return directory


def _bpe(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of the texts; each digit is a token, as in Qwen2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel()]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(list(texts), trainer)
    return made


KINDS: dict[str, Any] = {"bert": tiny_bert, "causal": tiny_causal}


def main() -> None:
    """Make one model from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--out", type=Path, required=True, help="a new directory")
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines, CSV or MRPC's file")
    parser.add_argument("--column", action="append", required=True, help="can be given twice")
    parser.add_argument("--vocabulary", type=int, default=2000, help="tokens")
    parser.add_argument("--hidden", type=int, default=32, help="size of the hidden states")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--positions", type=int, default=128, help="tokens of the longest text")
    given = parser.parse_args()
    sizes = {"vocabulary": given.vocabulary, "hidden": given.hidden, "layers": given.layers}
    try:
        rows = table(given.texts, given.column)
        texts = [str(row[column]) for row in rows for column in given.column]
        with needs("text", "a text model"):
            made = KINDS[given.kind](given.out, texts, **sizes, positions=given.positions)
    except UserError as error:
        parser.error(str(error))
    weights = (made / "model.safetensors").stat().st_size
    print(f"{made}: {weights / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main()
