"""Makes, evaluates and goes on with the demo model: `python -m tests.tools.demo_model --help`."""

import argparse
import os
from pathlib import Path

MODEL = Path("configs/models/demo")
TRAINING = Path(".manta/demo-model")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.demo_model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train, from where the folder was left, and write the model")
    train.add_argument("--steps", type=int, default=9400, help="how many in all, with those of earlier runs")
    train.add_argument("--falling", type=int, default=3400, help="in how many of them the learning rate falls")
    train.add_argument("--training", type=Path, default=TRAINING, help="where checkpoints are kept")
    train.add_argument("--model", type=Path, default=MODEL, help="where the trained model is written")
    train.add_argument("--from", dest="trained", type=Path, help="begin with the weights of this model")
    train.add_argument("--threads", type=int, default=os.cpu_count())
    train.add_argument("--device", default="cpu", help="cpu or cuda")
    export = commands.add_parser("export", help="write a checkpoint as a model")
    export.add_argument("--training", type=Path, default=TRAINING)
    export.add_argument("--checkpoint", default="latest.pt")
    export.add_argument("--model", type=Path, default=MODEL)
    evaluate = commands.add_parser("evaluate", help="count right answers to what training never saw")
    evaluate.add_argument("--model", type=Path, default=MODEL)
    evaluate.add_argument("--url", help="evaluate a service instead, for example http://127.0.0.1:8000/v1")
    evaluate.add_argument("--key", default=os.environ.get("OPENAI_API_KEY"))
    evaluate.add_argument("--served-model", default="manta/demo-chat")
    evaluate.add_argument("--count", type=int, default=200, help="how many dialogues of each skill")
    evaluate.add_argument("--seed", type=int, default=1)
    evaluate.add_argument("--skill", action="append", help="only these skills")
    evaluate.add_argument("--newcomers", action="store_true", help="ask what newcomers do instead")
    evaluate.add_argument("--show", type=int, default=0, help="how many wrong answers of each skill to show")
    arguments = parser.parse_args()
    {"train": _train, "export": _export, "evaluate": _evaluate}[arguments.command](arguments)


def _train(arguments: argparse.Namespace) -> None:
    import torch

    from tests.tools.demo_model.export import export
    from tests.tools.demo_model.training import Training

    torch.set_num_threads(arguments.threads)
    Training(arguments.training, arguments.device, trained=arguments.trained).run(arguments.steps, arguments.falling)
    export(arguments.training, "latest.pt", arguments.model)


def _export(arguments: argparse.Namespace) -> None:
    from tests.tools.demo_model.export import export

    export(arguments.training, arguments.checkpoint, arguments.model)


def _evaluate(arguments: argparse.Namespace) -> None:
    from tests.tools.demo_model.evaluation import evaluate, report
    from tests.tools.demo_model.mixture import SKILLS
    from tests.tools.demo_model.sensible import evaluate_newcomers

    skills = arguments.skill or SKILLS
    if arguments.url is None:
        from tests.tools.demo_model.checkpoint import open_checkpoint

        ask = open_checkpoint(arguments.model)
        is_new = arguments.newcomers
        results = evaluate_newcomers(ask) if is_new else evaluate(ask, arguments.count, skills, arguments.seed)
        print(report(results, arguments.show))
        return
    import openai

    from tests.tools.demo_model.service import Service

    service = Service(openai.OpenAI(base_url=arguments.url, api_key=arguments.key), arguments.served_model)
    if arguments.newcomers:
        print(report(evaluate_newcomers(service.each(service.chat)), arguments.show))
        return
    for name, (some, ask) in service.askers().items():
        asked = [skill for skill in skills if not some or skill in some]
        print(f"\n{name}\n")
        print(report(evaluate(ask, arguments.count, asked, arguments.seed), arguments.show), flush=True)


if __name__ == "__main__":
    main()
