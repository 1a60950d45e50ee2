"""The public names of `pl.tasks`, and where each lies."""

# ruff: noqa: I001

from .annotations import (
    SubProblem as SubProblem,
    add_knowledge as add_knowledge,
    add_plan as add_plan,
    subproblem_task as subproblem_task,
    subproblems_of as subproblems_of,
    written_note as written_note,
)
from .clinical import (
    ClinicalTasks as ClinicalTasks,
)
from .documents import (
    SeedDocuments as SeedDocuments,
    whole_documents as whole_documents,
)
from .files import (
    FileTasks as FileTasks,
)
from .gym import (
    Gym as Gym,
)
from .media import (
    ControlledDraw as ControlledDraw,
    ControlledTasks as ControlledTasks,
    Media as Media,
    MediaControl as MediaControl,
    media_of as media_of,
)
from .mixture import (
    Mixture as Mixture,
    part_task as part_task,
)
from .molecule_tasks import (
    SimilarMolecules as SimilarMolecules,
    check_molecules as check_molecules,
    favourable_answer as favourable_answer,
    molecule_of as molecule_of,
    molecule_picture as molecule_picture,
)
from .molecules import (
    canonical_smiles as canonical_smiles,
    descriptor_value as descriptor_value,
    need_rdkit as need_rdkit,
    read_molecule as read_molecule,
    scaffold_of as scaffold_of,
    split_by_scaffold as split_by_scaffold,
)
from .options import (
    add_options as add_options,
    contains_options as contains_options,
    letter_options as letter_options,
    option_texts as option_texts,
    reorder_options as reorder_options,
)
from .procedural import (
    ANSWER_PREFIX as ANSWER_PREFIX,
    answer_lines as answer_lines,
    demonstration as demonstration,
    exact_match as exact_match,
    final_answer as final_answer,
    format_answer as format_answer,
)
from .phrasing import (
    ANSWER_AT_ONCE as ANSWER_AT_ONCE,
    STOP as STOP,
    THINK_STEPWISE as THINK_STEPWISE,
    UNSURE_ANSWER as UNSURE_ANSWER,
    add_examples as add_examples,
    add_instruction as add_instruction,
    judging_task as judging_task,
    plain_question as plain_question,
    question_text as question_text,
    rephrase as rephrase,
)
from .qrels import (
    JudgedQueries as JudgedQueries,
    read_qrels as read_qrels,
)
from .relabel import (
    FrameLabel as FrameLabel,
    relabel_frames as relabel_frames,
    state_text as state_text,
)
from .sound_data import (
    write_sound as write_sound,
)
from .sources import (
    open_records as open_records,
    write_records as write_records,
)
from .triples import (
    read_triples as read_triples,
)
from .user_code import (
    load as load,
)
