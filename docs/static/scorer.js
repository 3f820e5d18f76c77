// Sphinx's own scores, and more for pages that users look for first.
var Scorer = {
  score: (result) => result[4] + ({tutorial: 4, how_to: 5, reference: 3}[result[0].split("/")[0]] || 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
