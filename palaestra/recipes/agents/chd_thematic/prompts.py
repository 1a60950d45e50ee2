"""What the agents of a thematic analysis are asked."""

import palaestra as pl


@pl.value_class
class ThematicPrompts:
    """What agents are asked. {identity}, {lines}; {codes}; {criterion} and {themes}; {a} and {b}, two
    themes. `quotes`: lines that a reviewer is shown of a theme; `labels`: whether its codes are shown.
    """

    code: str = (
        "You are {identity}. {caution}\nRead this part of an interview. Each line begins with its number. Write "
        "codes: a label of one to five words for what matters to the speaker, with the numbers of the lines that "
        "show it. One code a line, as in\nLABEL: q3, q7\nWrite nothing else.\n\n<question>\n{lines}\n</question>"
    )
    theme: str = (
        "You join codes of interviews into themes. {caution}\nEach code has its number, and how many readers "
        "wrote it. Join those that mean the same. Write one theme a line, as in\nNAME | DEFINITION | c1, c4\nA code "
        "belongs to one theme at most; leave out codes that are beside the point. Write nothing else.\n\n"
        "<question>\n{codes}\n</question>"
    )
    review: str = (
        "You review the themes of a qualitative study by {criterion} {caution}\n\n<question>\n{themes}\n"
        "</question>\n\nSay `score N`, N from 1 (poor) to 5 (good). Then write what to change, one a line, of these "
        "forms:\ndelete t2\nmerge t1 t3: NAME\nsplit t4: NAME = c1 c2; NAME = c3\nadd NAME: c5 c6\nWrite no such "
        "line where nothing is to change."
    )
    same: str = (
        "Do these two themes of a study mean the same? {caution}\n<a>{a}</a>\n<b>{b}</b>\nAnswer with one word, "
        "yes or no."
    )
    quotes: int = 2
    labels: bool = True
