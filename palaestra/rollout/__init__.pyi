"""The public names of `pl.rollout`, and where each lies."""

# ruff: noqa: I001

from .cast import (
    Acted as Acted,
    Alternate as Alternate,
    Cast as Cast,
    Either as Either,
    Frozen as Frozen,
    Moving as Moving,
    MovingAverage as MovingAverage,
    Rival as Rival,
    Snapshots as Snapshots,
    Sometimes as Sometimes,
)
from .branch import (
    Finished as Finished,
    MarkSteps as MarkSteps,
    Partial as Partial,
    Prefix as Prefix,
    PrefixValues as PrefixValues,
    Rescue as Rescue,
    continuation as continuation,
    prefix as prefix,
)
from .budget import (
    Enough as Enough,
    Extra as Extra,
    Few as Few,
    Pick as Pick,
    Regroup as Regroup,
    TopUp as TopUp,
)
from .collect import (
    Links as Links,
    MuteTruncated as MuteTruncated,
    Until as Until,
    apply_reward as apply_reward,
)
from .greedy import (
    Greedy as Greedy,
)
from .guide import (
    Begin as Begin,
    GuidanceSource as GuidanceSource,
    Mark as Mark,
    Rewrite as Rewrite,
)
from .hints import (
    Criteria as Criteria,
    Examples as Examples,
    HintColumn as HintColumn,
    Unleaked as Unleaked,
    another_task as another_task,
    leaks_answer as leaks_answer,
)
from .mismatched import (
    MismatchedAnswer as MismatchedAnswer,
)
from .play import (
    await_if_needed as await_if_needed,
    frame_of as frame_of,
)
from .player import (
    Continued as Continued,
    EnginePlayer as EnginePlayer,
    Handover as Handover,
    Script as Script,
)
from .privileged import (
    Demonstrated as Demonstrated,
    PeerSolution as PeerSolution,
    Revealed as Revealed,
    ShownColumn as ShownColumn,
)
from .recorded import (
    Swap as Swap,
    document_episode as document_episode,
    written_answer as written_answer,
)
from .search import (
    TreeSearch as TreeSearch,
    cut_episode as cut_episode,
)
from .spans import (
    MarkSpans as MarkSpans,
    tagged_text as tagged_text,
)
from .steps import (
    answer_steps as answer_steps,
)
from .tree import (
    BestFirst as BestFirst,
    Branch as Branch,
    Opening as Opening,
    Puct as Puct,
    SearchTree as SearchTree,
    Ucb as Ucb,
    Uct as Uct,
    grow_tree as grow_tree,
)
