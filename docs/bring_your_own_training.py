"""Train with TRL, two objectives and three seeds, then evaluate the checkpoints, compare them, and make a page.

    python docs/bring_your_own_training.py MODEL DATA

DATA is a folder with wikitext2.train.jsonl and wikitext2.test.jsonl, a text on each line: {"text": ...}
"""

import subprocess
import sys

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

import emobench

model, data = sys.argv[1:]
texts = load_dataset("json", data_files=f"{data}/wikitext2.train.jsonl", split="train").select_columns("text")
for objective in ("mle", "emo"):
    for seed in (0, 1, 2):
        folder = f"checkpoints/{objective}-{seed}"
        options = {"learning_rate": 2e-4, "num_train_epochs": 1, "save_strategy": "no", "report_to": [], "bf16": False}
        trainer = SFTTrainer(model, SFTConfig(folder, seed=seed, **options), train_dataset=texts)
        emobench.attach(trainer.model, objective)
        trainer.train()
        trainer.save_model(folder)
        declared = {"base": model, "trained_with": objective, "seeds": [seed], "recipe_name": "sft"}
        emobench.evaluate("lm-quick", model=folder, data_dirs=[data], limit=40, **declared)
print(emobench.compare("emo", "mle").frame[["metric", "baseline_mean", "candidate_mean", "seeds", "verdict"]])
subprocess.run(["emobench", "leaderboard", "site", "page"], check=True)
