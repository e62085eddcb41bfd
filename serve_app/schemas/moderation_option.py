"""The field `moderation` of chats and responses: that a request is moderated by its model's safety policy."""

from typing import Literal

from serve_app.schemas.base import ModelId, WireModel


class ModerationMode(WireModel):
    """What happens to a text that breaks the policy.

    Args:
        mode: `block` ends the answer. Scores are only to be had from `/v1/moderations`.
    """

    mode: Literal["score", "block"]


class ModerationPolicy(WireModel):
    """What happens to prompts and answers that break the policy.

    Args:
        input: what happens to the prompt.
        output: what happens to the answer.
    """

    input: ModerationMode | None = None
    output: ModerationMode | None = None


class RequestModeration(WireModel):
    """Moderation by the safety policy of the model, where it has one.

    Args:
        model: accepted for compatibility; the operator chooses what moderates.
        policy: what happens to prompts and answers that break the policy.
    """

    model: ModelId
    policy: ModerationPolicy | None = None

    @property
    def modes(self) -> dict[str, str]:
        """What is asked for, by the path of its field; without a policy that is scores, as with OpenAI."""
        policy = self.policy
        if policy is None or (policy.input is None and policy.output is None):
            return {"moderation.policy": "score"}
        sides = {"input": policy.input, "output": policy.output}
        return {f"moderation.policy.{side}": asked.mode for side, asked in sides.items() if asked is not None}
